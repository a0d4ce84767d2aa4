// Package conformance finds out whether a plugin behaves as the role protocol demands. It runs the plugin's executable, in any language, against a host of its own
// (package roletest), with no cluster, and judges only what is seen from outside: what the process prints, answers, logs and leaves behind.
//
// A Check is one demand, with an ID and a sentence that says what is demanded and why. Checks are run in their order. One that needs what another has found
// broken is not run; one that is about something that the manifest declares absent is skipped, and nothing else ever is. Test returns a Report with a Result
// for every check and a Verdict for every Profile.
//
// Every check is tested by a mutant (internal/mutant): a plugin with one fault, in which exactly that check must fail.
//
// The package owns one directory under /var/tmp for each run, and the processes that it launches. Both are gone when Test returns, also if its context ended. The
// plugin runs as the caller's user and, but for the checks that are about that, without a sandbox: whoever tests an executable must be willing to run it. It has no sandbox of its
// own: `reeved confine` makes the one of nodes (Config.Reeved).
package conformance
