package conformance

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/hashicorp/go-plugin"

	"github.com/reeveproject/reeve/sdk/role"
)

func handshakeChecks() []Check {
	return []Check{
		{
			ID: "handshake.executable",
			Sentence: "The file is an executable of this machine: the core executes the bytes that the catalog names, and nothing else comes with them. " +
				"It is a regular file, may be executed, and is started by the kernel.",
			run: checkExecutable,
		},
		{
			ID:    "handshake.cookie",
			needs: []string{"handshake.executable"},
			Sentence: "Without " + role.Handshake.MagicCookieKey + " in its environment, the process serves nothing, says on standard error what it is, and exits with a status other than 0: " +
				"somebody has started it by hand.",
			run: checkCookie,
		},
		{
			ID:    "handshake.line",
			needs: []string{"handshake.executable"},
			Sentence: fmt.Sprintf("The first line that the process prints is the handshake line of go-plugin, within %s: the core knows by it where to connect, and "+
				"ends a process that prints anything else.", handshakeTime),
			run: checkLine,
		},
		{
			ID:    "handshake.version",
			needs: []string{"handshake.line"},
			Sentence: fmt.Sprintf("The handshake line names version %d of go-plugin's own protocol, version %d of the plugin's, and gRPC: there is no other way to speak to a role.",
				plugin.CoreProtocolVersion, role.Handshake.ProtocolVersion),
			run: checkVersion,
		},
		{
			ID:    "handshake.versions",
			needs: []string{"handshake.version"},
			Sentence: "If the core also offers other versions, the plugin chooses the one that it speaks. If the core offers only versions that the plugin does not speak, the plugin never claims " +
				"one of them. Either side can then be upgraded first.",
			run: checkVersions,
		},
		{
			ID:       "handshake.plain",
			needs:    []string{"handshake.version"},
			Sentence: "The handshake line contains no TLS certificate. The directory of the socket and the kernel's peer credentials protect the connection, and the core does not speak TLS there.",
			run:      checkPlain,
		},
		{
			ID:    "handshake.socket",
			needs: []string{"handshake.version"},
			Sentence: "The process listens on a Unix socket directly in the directory that " + plugin.EnvUnixSocketDir + " names: the core follows no path that a role " +
				"chose, and a port could be reached by everybody.",
			run: checkSocket,
		},
	}
}

func checkExecutable(_ context.Context, s *subject) (string, error) {
	info, err := os.Stat(s.executable)
	switch {
	case err != nil:
		return "", err
	case info.IsDir():
		return "", fmt.Errorf("%s is a directory", s.executable)
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%s is no regular file (%s)", s.executable, info.Mode().Type())
	case info.Mode().Perm()&0o111 == 0:
		return "", fmt.Errorf("%s may not be executed (%s): chmod +x it", s.executable, info.Mode().Perm())
	}
	if _, err := s.launch(); err != nil {
		return "", fmt.Errorf("the kernel does not execute it: %w", err)
	}
	return "", nil
}

func checkCookie(ctx context.Context, s *subject) (string, error) {
	p, err := s.launch("PLUGIN_PROTOCOL_VERSIONS=1")
	if err != nil {
		return "", err
	}
	if err := p.awaitEnd(ctx, cmp.Or(p.patience, handshakeTime)); err != nil {
		return "", fmt.Errorf("started without %s: %w", role.Handshake.MagicCookieKey, err)
	}
	if p.code == 0 {
		return "", fmt.Errorf("started without %s it ends with status 0", role.Handshake.MagicCookieKey)
	}
	// First read its standard error to the end.
	if err := s.end(p); err != nil {
		return "", err
	}
	if text, _ := p.logged(); strings.TrimSpace(text) == "" {
		return "", fmt.Errorf("started without %s it ends (%s) and does not say why", role.Handshake.MagicCookieKey, p.exit())
	}
	return "", nil
}

// shake starts the process with offered versions and returns its handshake line.
func (s *subject) shake(ctx context.Context, versions string) (*process, handshake, error) {
	p, err := s.launch(cookie(), "PLUGIN_PROTOCOL_VERSIONS="+versions)
	if err != nil {
		return nil, handshake{}, err
	}
	line, err := p.awaitLine(ctx)
	return p, line, err
}

func checkLine(ctx context.Context, s *subject) (string, error) {
	_, _, err := s.shake(ctx, "1")
	return "", err
}

func checkVersion(ctx context.Context, s *subject) (string, error) {
	_, line, err := s.shake(ctx, "1")
	if err != nil {
		return "", err
	}
	if want := strconv.Itoa(plugin.CoreProtocolVersion); line.core != want {
		return "", fmt.Errorf("it speaks go-plugin's handshake in version %q, want %s", line.core, want)
	}
	if want := strconv.Itoa(int(role.Handshake.ProtocolVersion)); line.version != want {
		return "", fmt.Errorf("it speaks the plugin handshake in version %q, want %s", line.version, want)
	}
	if line.protocol != string(plugin.ProtocolGRPC) {
		return "", fmt.Errorf("it serves %q, want %s", line.protocol, plugin.ProtocolGRPC)
	}
	return "", nil
}

func checkVersions(ctx context.Context, s *subject) (string, error) {
	const later = "7"
	_, line, err := s.shake(ctx, "1,"+later)
	if err != nil {
		return "", fmt.Errorf("offered the versions 1 and %s: %w", later, err)
	}
	if line.version != "1" {
		return "", fmt.Errorf("offered the versions 1 and %s it chooses %q, and speaks 1 only", later, line.version)
	}
	// It may end, or name its version; the core detects the mismatch either way.
	_, line, err = s.shake(ctx, later)
	if err == nil && line.version == later {
		return "", fmt.Errorf("offered the version %s only, it says that it speaks that, and speaks 1 only", later)
	}
	return "", ctx.Err()
}

func checkPlain(ctx context.Context, s *subject) (string, error) {
	_, line, err := s.shake(ctx, "1")
	if err == nil && line.certificate != "" {
		err = fmt.Errorf("it offers a TLS certificate of %d characters", len(line.certificate))
	}
	return "", err
}

func checkSocket(ctx context.Context, s *subject) (string, error) {
	p, line, err := s.shake(ctx, "1")
	if err != nil {
		return "", err
	}
	if line.network != "unix" {
		return "", fmt.Errorf("it listens on %s %s, want a Unix socket", line.network, line.address)
	}
	if filepath.Dir(line.address) != p.directory {
		return "", fmt.Errorf("it listens on %s, want a socket directly in %s", line.address, p.directory)
	}
	info, err := os.Lstat(line.address)
	if err == nil && info.Mode().Type() != os.ModeSocket {
		err = fmt.Errorf("%s is no socket (%s)", line.address, info.Mode().Type())
	}
	return "", err
}
