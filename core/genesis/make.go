package genesis

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/reeveproject/reeve/core/plugin/store"
	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/proto/plainfile"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/proto/remit"
	"github.com/reeveproject/reeve/sdk/peercred"
	"github.com/reeveproject/reeve/sdk/role"
)

// describeTimeout is how long a plugin may take to describe itself.
const describeTimeout = 30 * time.Second

// Make returns the genesis catalog of executables that were just built. It runs each one without a sandbox, as the builder's own, and asks for its
// manifest. Executables for another platform cannot run here: then the file of the same name in the directory manifestsOf is asked instead. Every
// role is granted what it asks for.
func Make(ctx context.Context, executables []string, manifestsOf string) (*nodev1.Genesis, error) {
	g := &nodev1.Genesis{Version: Version}
	for _, path := range executables {
		answers := path
		if manifestsOf != "" {
			answers = filepath.Join(manifestsOf, filepath.Base(path))
		}
		platform, digest, err := identify(path)
		if err != nil {
			return nil, fmt.Errorf("genesis: %w", err)
		}
		manifest, err := askManifest(ctx, answers)
		if err != nil {
			return nil, fmt.Errorf("genesis: ask %s what it is: %w", answers, err)
		}
		g.Plugins = append(g.Plugins, &clusterv1.PluginRecord{
			Name: manifest.GetName(), Version: manifest.GetVersion(), Digests: map[string]string{platform: digest}, Manifest: manifest,
			Grants: remit.Wanted(manifest),
		})
	}
	slices.SortFunc(g.Plugins, func(a, b *clusterv1.PluginRecord) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return g, check(g)
}

// Write writes a genesis catalog to a file that anybody may read.
func Write(path string, g *nodev1.Genesis) error {
	content, err := protojson.Marshal(g)
	if err != nil {
		return fmt.Errorf("genesis: %w", err)
	}
	// The same catalog must give the same file; protojson varies its white space on purpose.
	var compact, indented bytes.Buffer
	if err := errors.Join(json.Compact(&compact, content), json.Indent(&indented, compact.Bytes(), "", "  ")); err != nil {
		return fmt.Errorf("genesis: %w", err)
	}
	indented.WriteByte('\n')
	if err := storage.WriteFile(path, indented.Bytes(), 0o644); err != nil {
		return fmt.Errorf("genesis: %w", err)
	}
	return nil
}

// identify returns the platform and the digest of an executable.
func identify(path string) (platform, digest string, err error) {
	file, err := plainfile.Open(path)
	if err != nil {
		return "", "", err
	}
	defer func() { _ = file.Close() }()
	header, err := elf.NewFile(file)
	if err != nil {
		return "", "", fmt.Errorf("%s is not a Linux executable: %w", path, err)
	}
	architecture, ok := map[elf.Machine]string{elf.EM_X86_64: "amd64", elf.EM_AARCH64: "arm64"}[header.Machine]
	if !ok {
		return "", "", fmt.Errorf("%s is for %s, which Reeve does not support", path, header.Machine)
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(file, 0, store.MaxExecutable)); err != nil {
		return "", "", err
	}
	return "linux/" + architecture, "sha256:" + hex.EncodeToString(sum.Sum(nil)), nil
}

// askManifest runs a plugin and asks it for its manifest.
func askManifest(ctx context.Context, path string) (*rolev1.Manifest, error) {
	ctx, cancel := context.WithTimeout(ctx, describeTimeout)
	defer cancel()
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	client := goplugin.NewClient(&goplugin.ClientConfig{
		HandshakeConfig: role.Handshake, Plugins: goplugin.PluginSet{role.PluginName: &goplugin.NetRPCUnsupportedPlugin{}},
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC}, SkipHostEnv: true, StartTimeout: describeTimeout,
		Cmd: exec.Command(absolute), Logger: hclog.NewNullLogger(),
	})
	defer client.Kill()
	address, err := client.Start()
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient("unix:"+address.String(), grpc.WithAuthority("localhost"), grpc.WithTransportCredentials(peercred.Credentials(nil)))
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	answer, err := rolev1.NewRoleServiceClient(conn).Describe(ctx, &rolev1.DescribeRequest{})
	if err != nil {
		return nil, err
	}
	return answer.GetManifest(), store.CheckManifest(answer.GetManifest())
}
