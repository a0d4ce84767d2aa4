// Package machine is what a worker changes of the machine that it is on, so that it can be put back: sysctls, mounts and control groups; and what the machine must have for it (Check).
//
// The package owns the control groups below /reeve-kubernetes, and the files in which Sysctls remembers. It watches nothing and publishes nothing.
package machine
