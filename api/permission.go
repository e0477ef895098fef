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
	read                         // read a tool, what belongs to one or to a run of one, or the list of tools
	readRun                      // read a run, its results, files and events, or the list of runs
	execute                      // start a run of a tool
	steer                        // cancel or rerun a run
	edit                         // create and change tools and their state; send callbacks of their runs again
	manage                       // keep systems and end users
	connect                      // give or take back an end user's credentials
	administer                   // manage keys, signing secrets, the audit log
)

// rule says who has a permission besides admins, who have all.
type rule struct {
	what  string   // begins a refusal
	roles []string // besides RoleAdmin
	tools bool     // whether a key's list of tools holds: it is about tools, or runs of them
}

// rules are all permissions that a role is asked for. docs/security.md shows them, and a
// test compares the two.
var rules = map[permission]rule{
	read:       {"Reading this", []string{stepwell.RoleMember, stepwell.RoleRunner}, true},
	readRun:    {"Reading this run", []string{stepwell.RoleMember, stepwell.RoleRunner, stepwell.RoleEndUser}, true},
	execute:    {"Running this tool", []string{stepwell.RoleMember, stepwell.RoleRunner, stepwell.RoleEndUser}, true},
	steer:      {"Stopping or repeating this run", []string{stepwell.RoleMember, stepwell.RoleRunner}, true},
	edit:       {"Changing this", []string{stepwell.RoleMember}, true},
	manage:     {"Managing systems and end users", []string{stepwell.RoleMember}, false},
	connect:    {"Changing this end user's credentials", []string{stepwell.RoleMember, stepwell.RoleEndUser}, false},
	administer: {"Managing the organization", nil, false},
}

// subject is what a request is about, as far as permissions depend on it.
type subject struct {
	toolID string // empty: no tool in particular, which is a list or a tool that is about to be made
	// owned is set when it belongs to endUserID, or to no end user when that is empty: an
	// end user's key reaches its own only.
	owned     bool
	endUserID string
}

// runSubject is a run as a subject.
func runSubject(r *stepwell.Run) subject {
	return subject{toolID: r.ToolID, owned: true, endUserID: r.Options.EndUserID}
}

// allow checks a caller against a permission.
func (p permission) allow(c *stepwell.Caller, s subject) error {
	if p.allows(c, s) {
		return nil
	}
	return stepwell.Errorf(stepwell.KindForbidden, "forbidden",
		"%s is not allowed with this API key (role %s): use another key, or have an admin change this one", rules[p].what, c.Role)
}

func (p permission) allows(c *stepwell.Caller, s subject) bool {
	if p <= known {
		return true
	}
	rule := rules[p]
	if c.Role != stepwell.RoleAdmin && !slices.Contains(rule.roles, c.Role) {
		return false
	}
	if c.Role == stepwell.RoleEndUser && (c.EndUserID == "" || s.owned && s.endUserID != c.EndUserID) {
		return false
	}
	if !rule.tools || c.Tools == nil {
		return true
	}
	if s.toolID == "" {
		return p != edit // a new tool would be outside the key's list
	}
	return slices.Contains(c.Tools, s.toolID)
}
