// Package js runs the JavaScript of users. It is the only importer of goja.
//
// User code can kill or hang a process that interprets it, so it runs in child
// processes: the same binary started again, which enters child mode through
// ChildRequested and Main before it does anything else. Pool is the parent side
// and an engine.Evaluator: it sends expressions with the parts of the data that
// they can reach, kills what passes its time, and replaces what died.
//
// The package owns what an expression is (its forms, its helpers, its limits and
// the texts of its errors). It must not know steps or templates, open
// connections, or write data or code into logs.
package js
