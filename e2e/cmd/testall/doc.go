// testall runs every test of every module of the workspace and counts them.
//
// It reads the modules from go.work; builds and vets each one outside the workspace, which shows that its go.mod is complete; checks that it
// selects the same versions of its dependencies there; and then runs all tests with the race detector, modules with few dependencies first
// and e2e last, and writes what `go test -json` said to var/test. Its last line is "N passed, N failed, N skipped".
//
// Beside a test that fails it counts as failed: a package that fails without a failed test, a module of which no test was run, a check that
// fails, a test that is skipped without saying why, and a table (see below) of which a row is not as it must be.
//
// Tests that have more to show than whether they passed leave a table in var/test/tables, as JSON: {"title", "columns", "rows", "failed"}. All tables of
// the run are printed before the last line.
package main
