//go:build !fault

package fault

// Point does nothing.
func Point(Name) {}

// Error reports nothing.
func Error(Name) error { return nil }
