//go:build !soak

package plugin_test

// What the gate runs of the tests that vary something. The soak runs all of them.
const (
	// momentsApart is how far the moments are apart at which a core is killed.
	momentsApart = 4
	// deepest is how many directories, each in the one before, a role makes.
	deepest = 2_000
	// launches is how many launches must leak nothing. A goroutine, a thread or a file that each of them leaks is seen.
	launches = 8
	// ordinaryTests are those that run as an ordinary user, too: one of each thing that a node does with a role, and what only such a user meets.
	ordinaryTests = "^(TestDescribe|TestInstanceLives|TestRoleCannotTouchItsExecutable|TestKilledIsSeen|" +
		"TestInstancesOutliveTheCoreAndAreReaped|TestReapFindsWhatNoRecordNames|TestAdopted|TestImpostorIsNotAdopted)$"
)
