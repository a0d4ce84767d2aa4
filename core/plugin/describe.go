package plugin

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/plugin/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// Describe asks the stored executable with a digest for its manifest, checks it, and ends the process. It asks twice, in two processes: a manifest is what
// people decide on, and has to be the same for everybody. The process runs in the strictest sandbox, as a user that is no role's, with a runtime
// directory, the machine's libraries and nothing else. One plugin is asked at a time.
//
// A *store.MissingError says that the executable is not stored; a *NotAPluginError that it does not behave as a plugin (ErrUnsteady: it answers differently
// when it is asked again); a *store.VersionError that plugin and core have no common protocol version; a *store.ManifestError what is wrong with the manifest. It takes
// twice Patience.Describe at most.
func (l *Launcher) Describe(ctx context.Context, digest string) (*rolev1.Manifest, error) {
	l.describing.Lock()
	defer l.describing.Unlock()
	first, err := l.describe(ctx, digest)
	if err != nil {
		return nil, err
	}
	second, err := l.describe(ctx, digest)
	if err != nil {
		return nil, err
	}
	if err := store.Compare(first, second); err != nil {
		return nil, &NotAPluginError{Digest: digest, Err: err}
	}
	return first, nil
}

// describe asks once.
func (l *Launcher) describe(ctx context.Context, digest string) (*rolev1.Manifest, error) {
	executable, err := l.store.Open(digest)
	if err != nil {
		return nil, err
	}
	name, id, err := l.number(describeName)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("plugin: describe %s: %w", store.Short(digest), err), executable.Close())
	}
	remit := &Remit{
		InstanceID: id, Name: name, Role: describeName, SharedUID: l.users.Shared(), Grants: &clusterv1.RoleGrants{}, Tier: clusterv1.Tier_TIER_CONFINED, digest: digest,
	}
	remit.UID, remit.GID = l.users.OfDescribe()
	if err := l.prepareDirectories(remit, digest); err != nil {
		return nil, errors.Join(fmt.Errorf("plugin: describe %s: %w", store.Short(digest), err), l.Discard(remit), executable.Close())
	}
	manifest, lines, err := l.ask(ctx, remit, executable, digest)
	discarded := l.Discard(remit)
	var version *store.VersionError
	var missing *store.MissingError
	var invalid *store.ManifestError
	switch {
	case err == nil:
		return manifest, discarded
	case errors.As(err, &version):
		if version.Plugin == "" {
			version.Plugin = "the plugin " + store.Short(digest)
		}
		return nil, version
	case ctx.Err() != nil:
		return nil, fmt.Errorf("plugin: describe %s: %w", store.Short(digest), ctx.Err())
	case errors.As(err, &missing):
		return nil, missing
	case errors.As(err, &invalid):
		return nil, invalid
	}
	return nil, &NotAPluginError{Digest: digest, Err: err, Lines: lines}
}

func (l *Launcher) ask(ctx context.Context, remit *Remit, executable *store.Executable, digest string) (manifest *rolev1.Manifest, lines []string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, l.patience.Describe, fmt.Errorf("did not answer within %s", l.patience.Describe))
	defer cancel()
	s, lines, err := l.open(ctx, remit, executable, digest, nil)
	if err != nil {
		return nil, lines, err
	}
	err = s.whileAlive(ctx, func(ctx context.Context) error {
		answer, err := rolev1.NewRoleServiceClient(s.conn).Describe(ctx, &rolev1.DescribeRequest{}, bounded())
		if ranOut(ctx, err) {
			<-ctx.Done()
		}
		if cause := context.Cause(ctx); err != nil && cause != nil {
			return cause
		}
		if status.Code(err) == codes.Unimplemented {
			return withoutRoleProtocol()
		}
		if err != nil {
			return breaks(err, fmt.Errorf("does not answer Describe: %s", textFrom(err.Error())))
		}
		manifest = answer.GetManifest()
		return store.CheckManifest(manifest)
	})
	s.expected = err == nil
	if err := s.end(ctx); err != nil {
		l.log.Warn("cleaning up after a plugin that was asked for its manifest", "digest", digest, "error", err)
	}
	return manifest, s.log.Lines(), s.why(err)
}
