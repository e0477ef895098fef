package web

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"stepwell"
)

// Brand is how an organization's pages look.
type Brand struct {
	Name   string // in the pages' head; default: the organization's name
	Logo   string // name of the logo's asset, empty without one
	Style  string // name of the colour's asset, empty without one
	colour string
	logo   []byte
	kind   string // content type of the logo
}

// Brands are the organizations' brands, by the organization's id or name.
type Brands map[string]*Brand

// maxLogo is how large a logo may be, in bytes.
const maxLogo = 256 << 10

// logoKinds are the images that a logo may be. SVG is shown as an image, where it can run
// nothing and load nothing.
var logoKinds = map[string]string{".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".webp": "image/webp", ".svg": "image/svg+xml"}

var hexColour = regexp.MustCompile(`^#[0-9a-fA-F]{6}$`)

// ReadBrands reads a JSON file: an object with, for each organization's id or name, an
// object of `name`, `logo` (path of a PNG, JPEG, WebP or SVG file of at most 256 KiB,
// relative to the JSON file) and `colour` (`#rrggbb`), each optional. An empty path gives
// none.
func ReadBrands(path string) (Brands, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var file map[string]struct{ Name, Logo, Colour string }
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&file); err != nil {
		return nil, fmt.Errorf("%s: must be an object of {\"<organization>\": {\"name\", \"logo\", \"colour\"}}: %w", path, err)
	}
	brands := Brands{}
	for org, given := range file {
		b := &Brand{Name: given.Name, colour: given.Colour}
		if b.colour != "" {
			if !hexColour.MatchString(b.colour) {
				return nil, fmt.Errorf("%s: the colour of %s must be written as #rrggbb", path, org)
			}
			b.Style = version(b.css()) + ".css"
		}
		if given.Logo != "" {
			if err := b.readLogo(filepath.Dir(path), given.Logo); err != nil {
				return nil, fmt.Errorf("%s: the logo of %s: %w", path, org, err)
			}
		}
		brands[org] = b
	}
	return brands, nil
}

func (b *Brand) readLogo(dir, path string) (err error) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	ending := strings.ToLower(filepath.Ext(path))
	if b.kind = logoKinds[ending]; b.kind == "" {
		return fmt.Errorf("must be a .png, .jpg, .webp or .svg file")
	}
	if b.logo, err = os.ReadFile(path); err != nil {
		return err
	}
	if len(b.logo) > maxLogo {
		return fmt.Errorf("is %d bytes, more than %d", len(b.logo), maxLogo)
	}
	if found := http.DetectContentType(b.logo); ending != ".svg" && found != b.kind {
		return fmt.Errorf("is not what its name says, but %s", found)
	}
	b.Logo = version(b.logo) + ending
	return nil
}

// brand gives the look of an end user's organization; that of none before it is known.
func (h *Handler) brand(g *stepwell.Guest) Brand {
	var b Brand
	if g != nil {
		if found := h.Brands[g.OrgID]; found != nil {
			b = *found
		} else if found := h.Brands[g.OrgName]; found != nil {
			b = *found
		}
		if b.Name == "" {
			b.Name = g.OrgName
		}
	}
	return b
}

// asset finds a brand's stylesheet or logo by name.
func (bs Brands) asset(name string) (content []byte, kind string) {
	for _, b := range bs {
		switch {
		case name == "":
		case name == b.Style:
			return b.css(), "text/css; charset=utf-8"
		case name == b.Logo:
			return b.logo, b.kind
		}
	}
	return nil, ""
}

// css is the stylesheet of a brand's colour, with text on it that can be read.
func (b *Brand) css() []byte {
	text := "#ffffff"
	if luminance(b.colour) > 0.1791 { // from there on black is the better contrast
		text = "#000000"
	}
	return fmt.Appendf(nil, ":root{--brand:%s;--on-brand:%s}\n", strings.ToLower(b.colour), text)
}

// luminance is the relative luminance of a colour as WCAG 2 has it, 0 to 1.
func luminance(colour string) float64 {
	part := func(from int) float64 {
		n, _ := strconv.ParseUint(colour[from:from+2], 16, 8)
		c := float64(n) / 255
		if c <= 0.04045 {
			return c / 12.92
		}
		return math.Pow((c+0.055)/1.055, 2.4)
	}
	return 0.2126*part(1) + 0.7152*part(3) + 0.0722*part(5)
}
