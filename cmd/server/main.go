// Command server is the production server: stateless, any number of them.
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
	os.Exit(app.Main(app.Parts{Server: true}))
}
