// Package mountinfo parses the kernel's list of mounts (proc_pid_mountinfo(5)).
package mountinfo
