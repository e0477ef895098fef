// Package web owns the pages that people see in a browser: the portal, where an end
// user connects credentials of their own. It is server-rendered HTML without a script.
// It decides how pages look, what a browser may do with them and which requests count
// as the end user's own; it must not store anything, and no secret is ever in a page.
package web
