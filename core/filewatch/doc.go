// Package filewatch tells of changes of files. It owns one inotify instance, whatever the number of files: the kernel gives a user 128 of them by default, and the tests and nodes of
// one machine share these. Where the kernel gives none, it wakes those who watch ten times a second. It watches the files and directories that it is asked for, and publishes a signal to each who asked.
package filewatch
