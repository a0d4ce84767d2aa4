// Package conformance tests whether a plugin behaves as the role protocol requires. It runs the plugin's executable, in any language, against its own
// host (package roletest) without a cluster, and judges only what is visible from outside: what the process prints, answers, logs and leaves behind.
//
// A Check is one requirement, with an ID and a sentence that says what is required and why. Checks run in order. A check that needs what another one
// has found broken is not run. A check for something that the manifest does not declare is skipped; nothing else is ever skipped. Test returns a
// Report with a Result for every check and a Verdict for every Profile.
//
// Every check is tested by a mutant (internal/mutant): a plugin with one fault, for which exactly that check must fail.
//
// The package owns one directory under /var/tmp for each run, and the processes that it starts. Both are gone when Test returns, even if its context
// ended. The plugin runs as the caller's user, and without a sandbox except in the checks about it: whoever tests an executable must be willing to
// run it. The package has no sandbox of its own: `reeved confine` makes the one of nodes (Config.Reeved).
package conformance
