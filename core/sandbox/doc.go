// Package sandbox starts a process that can do what its policy says and nothing else.
//
// It owns no state but the thread that starts a process. It watches and publishes nothing.
//
// A process inherits its sandbox from the thread that starts it: a goroutine locks itself to a thread, confines the thread step by step, starts the
// process from it, and lets the thread die. So the executable itself is the first program of the process. There is no launcher whose memory, time and
// descriptors would count, and not one instruction of the role runs outside its sandbox.
package sandbox
