// Package usertest gives tests a user that no other test on the machine has. It owns /tmp/reeve-test-users, where each user has a file that is locked
// while a process has that user.
package usertest
