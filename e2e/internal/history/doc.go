// Package history writes down what concurrent clients of the cluster API asked for and were answered, and judges it: whether the answers are those of one state that every
// call changed or read at one moment between its beginning and its end (linearizability, by porcupine), whether a write that was acknowledged is missing in the end, and
// whether there was enough traffic around a fault for that to mean anything.
//
// A call whose outcome its client does not know (the connection broke, the time was up) is modelled as such: it may have had its effect at any moment after it began, later
// than any other call, or never.
package history
