// Package e2e tests the whole of Reeve by its real programs: every test starts them as a user would, looks at them from outside (the command
// line, the processes of the machine, files, sockets) and imports nothing of them but the protocol.
//
// The programs are built once. A test has a cluster of its own in a directory of its own, kills only processes that it has found to be that
// cluster's, and fails if any of them is left when it ends. The gate runs one case of each kind, as root and a few also as an ordinary
// user; soak runs every case as both (see internal/soak). Tests that need root say so when they are skipped. The pieces of the harness are
// in internal: build makes the programs, roleplugin makes plugins as a third party
// would, devcluster is a cluster as its operator has it, procfs are the processes of the machine, and eventually waits.
//
// With REEVE_E2E_KEEP=1 in the environment the files of clusters whose tests failed are kept, and the test says where.
package e2e
