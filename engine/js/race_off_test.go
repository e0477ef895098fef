//go:build !race

package js

// raceEnabled says that code runs ten times slower.
const raceEnabled = false
