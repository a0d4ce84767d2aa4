package plugin

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/plugin/output"
	"github.com/reeveproject/reeve/core/plugin/store"
	"github.com/reeveproject/reeve/proto/limits"
)

// Why a process did not become an instance. They are found with errors.Is in a LaunchError or a NotAPluginError.
var (
	// ErrExec says that the kernel refused to execute the file.
	ErrExec = errors.New("cannot be executed")
	// ErrExited says that the process ended before it was connected and started.
	ErrExited = errors.New("ended before it was started")
	// ErrHandshakeTimeout says that the process printed no handshake line in time.
	ErrHandshakeTimeout = errors.New("made no handshake in time")
	// ErrHandshake says that the process printed something else than a handshake line that the core accepts.
	ErrHandshake = errors.New("made no valid handshake")
	// ErrPeer says that somebody else than the instance listens on the socket that the instance named.
	ErrPeer = errors.New("its socket is not its own")
)

// withoutRoleProtocol is for a plugin that made the handshake and does not know the calls of the role protocol. There is no version before the one that
// this core speaks, so the plugin is the newer one.
func withoutRoleProtocol() *store.VersionError {
	return &store.VersionError{Protocol: "the role protocol", Theirs: "in another version only", Ours: store.RoleProtocol, UpgradeCore: true}
}

// UnknownRoleError says that a plugin of the catalog does not offer a role.
type UnknownRoleError struct {
	Role, Plugin string
}

func (e *UnknownRoleError) Error() string {
	return fmt.Sprintf("plugin: plugin %s offers no role %s; remove the role from the node or add a version of the plugin that offers it", e.Plugin, e.Role)
}

// GrantError says that a role was granted something that this core does not understand. The role does not run with less, and not with more either.
type GrantError struct {
	Role, Plugin string
	// Grants are the names of the grants that are wrong, each once.
	Grants []string
	// Err joins a *remit.Error for each problem.
	Err error
}

func (e *GrantError) Error() string {
	return fmt.Sprintf("plugin: role %s of plugin %s was granted what this core does not understand (%s): %s; withdraw the grant (reeve plugin withdraw) or upgrade reeved "+
		"on this node", e.Role, e.Plugin, strings.Join(e.Grants, ", "), strings.ReplaceAll(e.Err.Error(), "\n", "; "))
}

func (e *GrantError) Unwrap() error { return e.Err }

// LaunchError says why an instance was not launched.
type LaunchError struct {
	Role, Plugin, Version, Digest string
	Err                           error
	// Lines is what the process last wrote to its log, oldest first; may be empty.
	Lines []string
	// Exit is how the process ended, if it ended by itself; otherwise nil.
	Exit *Exit
	// Node says that the node is why, and not the plugin: its disk is full, for example, or it has no process left to give.
	Node bool
}

func (e *LaunchError) Error() string {
	return fmt.Sprintf("plugin: role %s (plugin %s %s, %s): %v%s", e.Role, e.Plugin, e.Version, store.Short(e.Digest), e.Err, lastLine(e.Lines))
}

func (e *LaunchError) Unwrap() error { return e.Err }

// exitedError is ErrExited with how the process ended.
type exitedError struct{ exit Exit }

func (e *exitedError) Error() string { return fmt.Sprintf("%v: %s", ErrExited, e.exit.status()) }

func (e *exitedError) Unwrap() error { return ErrExited }

// brokenError is the error of a call whose connection may have broken.
type brokenError struct{ error }

func (e *brokenError) Unwrap() error { return e.error }

// breaks is the error of a call for people, and says if its connection may have broken.
func breaks(call, told error) error {
	if status.Code(call) == codes.Unavailable {
		return &brokenError{told}
	}
	return told
}

// nodeError is an error of what the node makes for a process before it launches it, whatever the reason.
type nodeError struct{ error }

func (e *nodeError) Unwrap() error { return e.error }

// ofNode reports whether an error is the node's and not the role's: the node could not make what a process needs, has run out of something, or its disk does not work.
func ofNode(err error) bool {
	var made *nodeError
	return errors.As(err, &made) || slices.ContainsFunc([]syscall.Errno{
		syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EIO, syscall.ENOMEM, syscall.EAGAIN, syscall.EMFILE, syscall.ENFILE, syscall.ETXTBSY,
	}, func(number syscall.Errno) bool { return errors.Is(err, number) })
}

// ConfigurationError says that a role refused its configuration. It is refused again until the configuration changes.
type ConfigurationError struct {
	Role     string
	Problems []ConfigurationProblem
}

// ConfigurationProblem is one thing that is wrong with a configuration.
type ConfigurationProblem struct {
	// Path is a JSON Pointer; empty: the whole document.
	Path    string
	Message string
}

func (e *ConfigurationError) Error() string {
	problems := make([]string, 0, len(e.Problems))
	for _, p := range e.Problems {
		path := p.Path
		if path == "" {
			path = "the document"
		}
		problems = append(problems, path+": "+p.Message)
	}
	return fmt.Sprintf("plugin: role %s refuses its configuration: %s", e.Role, strings.Join(problems, "; "))
}

// NotAPluginError says that an executable does not behave as a plugin.
type NotAPluginError struct {
	Digest string
	Err    error
	// Lines is what the process last wrote to its standard error, oldest first; may be empty.
	Lines []string
}

func (e *NotAPluginError) Error() string {
	return fmt.Sprintf("plugin: %s is not a plugin: %s%s", store.Short(e.Digest), ofIt(e.Err), lastLine(e.Lines))
}

func (e *NotAPluginError) Unwrap() error { return e.Err }

// SurvivorsError says that processes did not end although they were killed, which only the kernel can delay.
type SurvivorsError struct {
	// What they are processes of.
	What string
	PIDs []int
}

func (e *SurvivorsError) Error() string {
	return fmt.Sprintf("plugin: processes of %s did not end after SIGKILL: %v; they hang in the kernel (a stuck disk or mount?)", e.What, e.PIDs)
}

// textFrom makes a text of a role or plugin fit for an error: without control characters, and of bounded length.
func textFrom(text string) string { return limits.Clean(limits.Cut(text, maxProblem)) }

// ofIt is an error as a sentence about a plugin.
func ofIt(err error) string {
	text := err.Error()
	if strings.HasPrefix(text, "its ") {
		return text
	}
	return "it " + text
}

func lastLine(lines []string) string {
	if line := output.Headline(lines); line != "" {
		return fmt.Sprintf("; it last wrote: %s", line)
	}
	return ""
}

// Cause is the error without who it happened to, for a reader who knows that.
func (e *LaunchError) Cause() string {
	return fmt.Sprintf("%v%s", e.Err, lastLine(e.Lines))
}
