package js

import "strings"

// nestsTooDeeply reports whether a source opens more than maxNesting brackets
// inside each other. goja's parser has no bound of its own and recurses. The
// scan only guesses where a regular expression begins; where it guesses wrong,
// the limits of the child's stack and time hold.
func nestsTooDeeply(source string) bool {
	depth := 0
	last := byte('(') // the last byte that is no white space
	var templates []int
	for i := 0; i < len(source); i++ {
		c := source[i]
		switch {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			continue
		case c == '\'' || c == '"':
			i = skipQuoted(source, i+1, c)
		case c == '`':
			i = skipTemplate(source, i+1)
			if i < len(source) && source[i] == '{' {
				depth++
				templates = append(templates, depth)
			}
		case c == '/' && i+1 < len(source) && (source[i+1] == '/' || source[i+1] == '*'):
			i = skipComment(source, i)
			continue
		case c == '/' && strings.IndexByte("(,=:[!&|?{};+-*%<>~^", last) >= 0:
			i = skipQuoted(source, i+1, '/')
		case c == '(' || c == '[' || c == '{':
			depth++
		case c == '}' && len(templates) > 0 && templates[len(templates)-1] == depth:
			depth--
			templates = templates[:len(templates)-1]
			i = skipTemplate(source, i+1)
			if i < len(source) && source[i] == '{' {
				depth++
				templates = append(templates, depth)
			}
		case (c == ')' || c == ']' || c == '}') && depth > 0:
			depth--
		}
		if depth > maxNesting {
			return true
		}
		last = c
	}
	return false
}

// skipQuoted gives the offset of the byte that ends a quoted text, or of the
// end of its line.
func skipQuoted(source string, i int, quote byte) int {
	for ; i < len(source); i++ {
		switch source[i] {
		case '\\':
			i++
		case quote, '\n':
			return i
		}
	}
	return i
}

// skipTemplate gives the offset of the backtick that ends a template literal or
// of the brace of the `${` that interrupts it.
func skipTemplate(source string, i int) int {
	for ; i < len(source); i++ {
		switch {
		case source[i] == '\\':
			i++
		case source[i] == '`':
			return i
		case source[i] == '$' && i+1 < len(source) && source[i+1] == '{':
			return i + 1
		}
	}
	return i
}

// skipComment gives the offset of the last byte of a comment.
func skipComment(source string, i int) int {
	end := "\n"
	if source[i+1] == '*' {
		end = "*/"
	}
	n := strings.Index(source[i+2:], end)
	if n < 0 {
		return len(source)
	}
	return i + 2 + n + len(end) - 1
}
