// Package sandbox starts a process that can do what its policy says and nothing else.
//
// It owns no state but the thread on which a process is started. It watches nothing and publishes nothing.
//
// A process inherits its sandbox from the thread that starts it: a goroutine locks itself to a thread, confines that thread step by step, starts the process
// from it, and lets the thread die. So the executable itself is the first program of the process: there is no launcher in between whose memory,
// time and descriptors would have to be accounted for, and not one instruction of the role runs outside of its sandbox.
package sandbox
