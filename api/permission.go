package api

import (
	"slices"

	"stepwell"
)

// permission is what a route asks of its caller.
type permission int

const (
	open       permission = iota // no key needed
	known                        // any valid key
	read                         // read a tool, a run, or lists of them
	execute                      // start or cancel runs of a tool
	edit                         // create and change tools
	administer                   // manage keys
)

// what names the permission in a refusal.
func (p permission) what() string {
	switch p {
	case execute:
		return "Running this tool"
	case edit:
		return "Changing tools"
	case administer:
		return "Managing the organization"
	default:
		return "Reading this"
	}
}

// allow checks a caller against a permission on a tool. An empty toolID means no
// tool in particular: lists, and a tool that is about to be made.
func (p permission) allow(c *stepwell.Caller, toolID string) error {
	if p.allows(c, toolID) {
		return nil
	}
	return stepwell.Errorf(stepwell.KindForbidden, "forbidden",
		"%s is not allowed with this API key (role %s): use another key, or have an admin change this one", p.what(), c.Role)
}

func (p permission) allows(c *stepwell.Caller, toolID string) bool {
	if p <= known || c.Role == stepwell.RoleAdmin {
		return true
	}
	switch c.Role {
	case stepwell.RoleMember:
		if p == administer {
			return false
		}
	case stepwell.RoleRunner:
		if p == administer || p == edit {
			return false
		}
	default:
		return false
	}
	only := visibleTools(c)
	if only == nil {
		return true
	}
	if toolID == "" {
		return p != edit // a new tool would be outside the key's list
	}
	return slices.Contains(only, toolID)
}

// visibleTools are the ids of the tools that a caller may see; nil means all.
func visibleTools(c *stepwell.Caller) []string {
	if c.Role == stepwell.RoleAdmin {
		return nil
	}
	return c.Tools
}
