package web

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"stepwell"
)

func writeFile(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReadBrands(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "logo.svg"), `<svg xmlns="http://www.w3.org/2000/svg"/>`)
	writeFile(t, filepath.Join(dir, "logo.png"), "no image")
	writeFile(t, filepath.Join(dir, "large.svg"), strings.Repeat("x", maxLogo+1))
	brands, err := ReadBrands(writeFile(t, filepath.Join(dir, "good.json"), `{"acme":{"name":"Acme Tools","logo":"logo.svg","colour":"#FFCC00"},"other":{}}`))
	if err != nil {
		t.Fatal(err)
	}
	h := New(Config{Brands: brands})
	b := h.brand(&stepwell.Guest{OrgID: "1", OrgName: "acme"})
	if b.Name != "Acme Tools" || h.brand(&stepwell.Guest{OrgID: "2", OrgName: "other"}).Name != "other" || h.brand(nil).Name != "" {
		t.Errorf("brand %+v", b)
	}
	for asset, says := range map[string]string{b.Style: "--brand:#ffcc00;--on-brand:#000000", b.Logo: "<svg"} {
		w := httptest.NewRecorder()
		h.ServePortal(w, httptest.NewRequest("GET", "/v1/portal/brand/"+asset, nil), "t")
		if w.Code != 200 || !strings.Contains(w.Body.String(), says) || !strings.Contains(w.Header().Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: %d %s %v", asset, w.Code, w.Body, w.Header())
		}
	}
	for name, text := range map[string]string{"no JSON": `{`, "another field": `{"a":{"color":"#000000"}}`, "a colour by name": `{"a":{"colour":"red"}}`, "a colour with code": `{"a":{"colour":"#000000}body{"}}`,
		"no such logo": `{"a":{"logo":"none.png"}}`, "a logo that is none": `{"a":{"logo":"logo.png"}}`, "another kind": `{"a":{"logo":"good.json"}}`, "a large logo": `{"a":{"logo":"large.svg"}}`} {
		if _, err := ReadBrands(writeFile(t, filepath.Join(dir, "bad.json"), text)); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	if brands, err := ReadBrands(""); brands != nil || err != nil {
		t.Error(brands, err)
	}
	if _, err := ReadBrands(filepath.Join(dir, "none.json")); err == nil {
		t.Error("a missing file is accepted")
	}
}

// TestColoursCanBeRead: text on any brand's colour has the contrast of 4.5 that WCAG 2 AA
// asks for.
func TestColoursCanBeRead(t *testing.T) {
	t.Parallel()
	for i := range 1 << 12 {
		colour := fmt.Sprintf("#%x0%x0%x0", i>>8&15, i>>4&15, i&15)
		css := string((&Brand{colour: colour}).css())
		text := 0.0
		if strings.Contains(css, "#ffffff") {
			text = 1
		}
		back := luminance(colour)
		if contrast := (max(text, back) + 0.05) / (min(text, back) + 0.05); contrast < 4.5 {
			t.Fatalf("%s: contrast %.2f", colour, contrast)
		}
	}
}

func TestLabels(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{"api_key": "API key", "account-id": "Account ID", "token": "Token", "clientSecret": "ClientSecret", "_": "_", "öl": "Öl", "base.url": "Base URL"} {
		if got := label(key); got != want {
			t.Errorf("%s: %q, not %q", key, got, want)
		}
	}
}
