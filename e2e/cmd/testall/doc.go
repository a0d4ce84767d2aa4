// testall judges what gotestsum has run: it counts the tests, and says what fails the run beside a failed test.
//
//	testall [-seed N] [-modules "PATH PATH"] TIER...
//
// It reads var/test/TIER.json, the events of go test. `make test` gives it the tiers unit and system. These fail a run too:
//
//   - a test that is skipped without a reason, and a module of which no test ran
//   - a package that fails without a failed test, or does not end, whatever a repetition says: a goroutine is left, or TestMain failed
//   - more than two flaky tests, or one that docs/flaky.md already lists; a test is flaky if it passes only when gotestsum repeats it
//   - a flaky test whose first output shows a panic (but etcd's on a full disk), a data race, a leak, an escape or a lost write
//   - a failed row in a table: tests leave tables in var/test/tables, as JSON: {"title", "columns", "rows", "failed"}
//
// Its last line is "N passed, N failed, N skipped, N flaky".
package main
