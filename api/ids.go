package api

import (
	"regexp"
	"strings"

	"stepwell"
)

const (
	toolIDRule = "1 to 200 characters of A-Z a-z 0-9 . _ ~ -, and not . or .."
	runIDRule  = "1 to 200 characters of A-Z a-z 0-9 . _ ~ : -, and not . or .."
)

func validToolID(id string) bool { return validID(id, stepwell.MaxToolID, "._~-") }

func validRunID(id string) bool { return validID(id, stepwell.MaxRunID, "._~:-") }

// validID checks for letters and digits of ASCII and the given other characters.
func validID(id string, most int, others string) bool {
	if id == "" || len(id) > most || id == "." || id == ".." {
		return false
	}
	for i := range len(id) {
		c := id[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		default:
			if strings.IndexByte(others, c) < 0 {
				return false
			}
		}
	}
	return true
}

var versionPattern = regexp.MustCompile(`^\d{1,9}\.\d{1,9}\.\d{1,9}$`)
