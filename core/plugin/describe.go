package plugin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// describeTimeout bounds Describe as a whole: a plugin that is not built for it is found out by then.
const describeTimeout = 10 * time.Second

// Describe asks the stored executable with a digest for its manifest, checks it, and ends the process. The process runs as a user that is no
// role's, with a runtime directory and nothing else. One plugin is asked at a time.
//
// A *MissingError says that the executable is not stored; a *NotAPluginError that it does not behave as a plugin; a *VersionError that plugin
// and core have no common protocol version; a *ManifestError what is wrong with the manifest. It takes 10 s at most.
func (l *Launcher) Describe(ctx context.Context, digest string) (*rolev1.Manifest, error) {
	l.describing.Lock()
	defer l.describing.Unlock()
	executable, err := l.store.Path(digest)
	if err != nil {
		return nil, err
	}
	name, id, err := l.number(describeName)
	if err != nil {
		return nil, fmt.Errorf("plugin: describe %s: %w", short(digest), err)
	}
	remit := &Remit{InstanceID: id, Name: name, Role: describeName, SharedUID: l.users.shared}
	remit.UID, remit.GID = l.users.ofDescribe()
	if err := l.prepareDirectories(remit, digest); err != nil {
		return nil, errors.Join(fmt.Errorf("plugin: describe %s: %w", short(digest), err), l.Discard(remit))
	}
	manifest, lines, err := l.ask(ctx, remit, executable, digest)
	discarded := l.Discard(remit)
	var version *VersionError
	switch {
	case err == nil:
		return manifest, discarded
	case errors.As(err, &version):
		if version.Plugin == "" {
			version.Plugin = "the plugin " + short(digest)
		}
		return nil, version
	case ctx.Err() != nil:
		return nil, fmt.Errorf("plugin: describe %s: %w", short(digest), ctx.Err())
	}
	var invalid *ManifestError
	if errors.As(err, &invalid) {
		return nil, invalid
	}
	return nil, &NotAPluginError{Digest: digest, Err: err, Lines: lines}
}

func (l *Launcher) ask(ctx context.Context, remit *Remit, executable, digest string) (manifest *rolev1.Manifest, lines []string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, describeTimeout, fmt.Errorf("did not answer within %s", describeTimeout))
	defer cancel()
	s, lines, err := l.open(ctx, remit, executable, digest, nil)
	if err != nil {
		return nil, lines, err
	}
	err = s.whileAlive(ctx, func(ctx context.Context) error {
		answer, err := rolev1.NewRoleServiceClient(s.conn).Describe(ctx, &rolev1.DescribeRequest{}, bounded())
		if cause := context.Cause(ctx); err != nil && cause != nil {
			return cause
		}
		if status.Code(err) == codes.Unimplemented {
			return withoutRoleProtocol()
		}
		if err != nil {
			return fmt.Errorf("does not answer Describe: %s", clean(cut(err.Error(), maxProblem)))
		}
		manifest = answer.GetManifest()
		return CheckManifest(manifest)
	})
	if err := s.end(ctx); err != nil {
		l.log.Warn("cleaning up after a plugin that was asked for its manifest", "digest", digest, "error", err)
	}
	return manifest, s.log.lines(), err
}
