// Command worker is the production worker: stateless, any number of them.
package main

import (
	"os"

	"stepwell/engine/js"
	"stepwell/internal/app"
)

func main() {
	if js.ChildRequested(os.Args) {
		js.Main()
	}
	os.Exit(app.Main(app.Parts{Worker: true}))
}
