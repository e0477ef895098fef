package secret

import (
	"net/url"
	"strings"
)

// redacted stands in a URL where a secret was.
const redacted = "…"

// secretParams are names of URL parameters whose values are secrets, in lower case.
var secretParams = map[string]bool{
	"token": true, "key": true, "api_key": true, "secret": true,
	"signature": true, "access_token": true, "password": true,
}

// RedactURL gives a URL as records and logs may show it: userinfo and the
// values of token, key, api_key, secret, signature, access_token and password
// (in any case, in query and fragment) are replaced by `…`. All else is kept
// byte by byte, and the text need not be a valid URL.
func RedactURL(text string) string {
	rest, fragment, hasFragment := strings.Cut(text, "#")
	rest, query, hasQuery := strings.Cut(rest, "?")
	out := redactUserinfo(rest)
	if hasQuery {
		out += "?" + redactParams(query)
	}
	if hasFragment {
		out += "#" + redactParams(fragment)
	}
	return out
}

// redactUserinfo replaces what stands between `//` and the last `@` of the authority.
func redactUserinfo(text string) string {
	start := strings.Index(text, "//")
	if start < 0 {
		return text
	}
	start += len("//")
	end := len(text)
	if i := strings.IndexByte(text[start:], '/'); i >= 0 {
		end = start + i
	}
	at := strings.LastIndexByte(text[start:end], '@')
	if at < 0 {
		return text
	}
	return text[:start] + redacted + text[start+at:]
}

// redactParams replaces the values of secret parameters in a query. Both `&` and
// the older `;` separate.
func redactParams(query string) string {
	var out strings.Builder
	for len(query) > 0 {
		param, separator := query, ""
		if i := strings.IndexAny(query, "&;"); i >= 0 {
			param, separator = query[:i], query[i:i+1]
		}
		query = query[len(param)+len(separator):]
		if name, value, _ := strings.Cut(param, "="); value != "" && secretParam(name) {
			param = name + "=" + redacted
		}
		out.WriteString(param + separator)
	}
	return out.String()
}

func secretParam(name string) bool {
	plain, err := url.QueryUnescape(name)
	return err == nil && secretParams[strings.ToLower(plain)]
}
