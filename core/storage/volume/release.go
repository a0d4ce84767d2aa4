package volume

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Patience is how long a close waits for a use that ends by itself: an exiting process that is no longer listed, or a mount in a namespace that a
// starting process still inherits. Tests lengthen it.
var Patience = 2 * time.Second

// Release unmounts a directory. place is what is mounted there. *BusyError if it is in use. A use without a process is waited for up to Patience.
func Release(ctx context.Context, target, location string, place Place) error {
	for until := time.Now().Add(Patience); ; {
		err := Unmount(target)
		if !errors.Is(err, unix.EBUSY) {
			return err
		}
		users, err := Users(place)
		if err != nil {
			return err
		}
		nested, err := nested(target)
		if err != nil {
			return err
		}
		if users = append(users, nested...); len(users) > 0 || !time.Now().Before(until) {
			return &BusyError{Location: location, Users: users}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Lasting returns Users after waiting up to Patience for users that only have a mount.
func Lasting(ctx context.Context, place Place) ([]User, error) {
	for until := time.Now().Add(Patience); ; {
		users, err := Users(place)
		if err != nil || len(users) == 0 || !time.Now().Before(until) {
			return users, err
		}
		if slices.ContainsFunc(users, func(u User) bool { return u.Use != "mount" || u.PID == os.Getpid() }) {
			return users, nil
		}
		select {
		case <-ctx.Done():
			return users, context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// nested returns the mounts below a directory, which block its unmounting. They belong to no process, so the core stands for them.
func nested(target string) ([]User, error) {
	real, err := resolve(target)
	if err != nil {
		return nil, err
	}
	mounts, err := Mounts()
	if err != nil {
		return nil, err
	}
	var users []User
	for _, mount := range mounts {
		if mount.Target != real && inside(mount.Target, real) {
			users = append(users, User{PID: os.Getpid(), Command: "a mount", Path: mount.Target, Use: "mount"})
		}
	}
	return users, nil
}
