// Package spread orders the addresses of servers that are all alike so that many clients do not all go to the same one.
package spread
