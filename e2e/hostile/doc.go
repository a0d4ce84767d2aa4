// Package hostile lets hostile roles loose on a real node, and looks what they reach.
//
// Every attempt is a row of a table: what is tried, what is to become of it, what became of it as root and as an ordinary user, and how that was judged.
// The roles are those of the plugin in e2e/internal/roleplugin/testdata/hostile, which speaks raw gRPC and makes raw system calls. They say of every try
// whether it was refused; wherever it can be seen from outside, their word is not what counts: the core and the victim are the same processes as before, the
// victim's files and keys are what they were, every write that was acknowledged is there, and the node is Home.
//
// As root no row may escape, and the gate runs only that; soak runs the ordinary user too. As an ordinary user all roles share a user ID, and some parts of the sandbox cannot be enforced; the node's status lists them.
// Rows that need one of these are shown as not asserted, with what happened.
//
// A role that uses something up gets so much at once, and so much in a time: a row counts what it got, and more is an escape, however busy the machine is. How long the victim waited meanwhile is told, and
// TestStoreUnderAttack judges it in soak. Some rows are performed by the test itself, as somebody outside of the cluster.
//
// HOSTILE_ROWS, a regular expression for the IDs of rows, has single rows performed; the table of the last whole run is then left as it is. A process beside the
// test, the guard, stops the nodes and removes the files of a test that was ended before it could: by the time-out of go test, or killed.
//
// The test writes the table to var/test/tables, from where `make test` prints it. docs/reference/hostile-roles.md is made from the same rows:
// HOSTILE_WRITE_DOCS=1 go test -run TestReference ./e2e/hostile.
package hostile
