// testall runs every test of every module of the workspace and counts them.
//
// It reads the modules from go.work; builds and vets each one outside the workspace, which shows that its go.mod is complete; checks that it
// selects the same versions of its dependencies there; and then runs all tests with the race detector, modules with few dependencies first
// and e2e last, and writes what `go test -json` said to var/test. Its last line is "N passed, N failed, N skipped".
//
// Beside a test that fails it counts as failed: a package that fails without a failed test, a module of which no test was run, a check that
// fails, and a test that is skipped without saying why.
package main
