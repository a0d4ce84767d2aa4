package nodeapi_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/inorder"
	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/plugin/store"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

func (a *api) panics() {
	a.imports(func(context.Context, io.Reader) (string, *rolev1.Manifest, error) { panic("a secret") })
}

// digests imports by reading all and telling the digest.
func digests(_ context.Context, r io.Reader) (string, *rolev1.Manifest, error) {
	hash := sha256.New()
	if _, err := io.Copy(hash, r); err != nil {
		return "", nil, fmt.Errorf("keeping the executable: %w", err)
	}
	return "sha256:" + hex.EncodeToString(hash.Sum(nil)), &rolev1.Manifest{Name: "lighthouse", Version: "0.1.0"}, nil
}

func TestABigPluginIsImported(t *testing.T) {
	a := serve(t)
	a.imports(digests)
	part := make([]byte, 1<<20)
	if _, err := rand.Read(part); err != nil {
		t.Fatal(err)
	}
	for name, client := range map[string]nodev1.NodeServiceClient{
		"on the socket": a.client(),
		"over TCP":      nodev1.NewNodeServiceClient(a.remote(selfSigned(t, a.owner))),
	} {
		stream, err := client.ImportPlugin(a.context())
		if err != nil {
			t.Fatal(err)
		}
		hash := sha256.New()
		for i := range 24 {
			data := part[:len(part)-i] // messages need not be of one size
			hash.Write(data)
			if err := stream.Send(&nodev1.ImportPluginRequest{Data: data}); err != nil {
				t.Fatal(err)
			}
		}
		response, err := stream.CloseAndRecv()
		if err != nil {
			t.Fatal(err)
		}
		if want := "sha256:" + hex.EncodeToString(hash.Sum(nil)); response.GetDigest() != want {
			t.Errorf("%s: the digest is %s, want %s", name, response.GetDigest(), want)
		}
		if response.GetPlatform() != runtime.GOOS+"/"+runtime.GOARCH || response.GetManifest().GetName() != "lighthouse" {
			t.Errorf("%s: the answer is %v", name, response)
		}
	}
}

func TestACancelledImportEnds(t *testing.T) {
	a := serve(t)
	began := make(chan struct{})
	ended := make(chan error, 1)
	a.imports(func(ctx context.Context, r io.Reader) (string, *rolev1.Manifest, error) {
		one := make([]byte, 1)
		if _, err := io.ReadFull(r, one); err != nil {
			t.Errorf("the first byte: %v", err)
		}
		close(began)
		_, err := io.Copy(io.Discard, r)
		<-ctx.Done()
		ended <- err
		return "", nil, err
	})
	ctx, cancel := context.WithCancel(a.context())
	stream, err := a.client().ImportPlugin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&nodev1.ImportPluginRequest{Data: []byte("ELF")}); err != nil {
		t.Fatal(err)
	}
	<-began
	cancel()
	select {
	case err := <-ended:
		if err == nil || errors.Is(err, io.EOF) {
			t.Errorf("a cancelled stream reads as a whole executable: %v", err)
		}
	case <-a.context().Done():
		t.Fatal("the import did not end")
	}
}

func TestWhyAnImportFailed(t *testing.T) {
	for name, test := range inorder.Of(map[string]struct {
		fails error
		code  codes.Code
	}{
		"not a plugin":    {&plugin.NotAPluginError{Digest: "sha256:00", Err: plugin.ErrHandshake}, codes.InvalidArgument},
		"a bad manifest":  {&store.ManifestError{Plugin: "x", Problems: []string{"no version"}}, codes.InvalidArgument},
		"another version": {&store.VersionError{Plugin: "x", Protocol: "reeve.role", Theirs: "v9", Ours: "v1"}, codes.InvalidArgument},
		"a full disk":     {errors.New("no space left on device"), codes.Internal},
		"a status":        {status.Error(codes.ResourceExhausted, "too many"), codes.ResourceExhausted},
	}) {
		t.Run(name, func(t *testing.T) {
			a := serve(t)
			a.imports(func(_ context.Context, r io.Reader) (string, *rolev1.Manifest, error) {
				// Before all was read: the rest of the stream is not waited for.
				if _, err := io.ReadFull(r, make([]byte, 10)); err != nil {
					t.Error(err)
				}
				return "", nil, fmt.Errorf("importing: %w", test.fails)
			})
			stream, err := a.client().ImportPlugin(a.context())
			if err != nil {
				t.Fatal(err)
			}
			for err == nil {
				err = stream.Send(&nodev1.ImportPluginRequest{Data: make([]byte, 1<<16)})
			}
			if !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			_, err = stream.CloseAndRecv()
			if status.Code(err) != test.code || !strings.Contains(err.Error(), test.fails.Error()) || !strings.Contains(err.Error(), "importing: ") {
				t.Errorf("it ends with %v", err)
			}
		})
	}
}

func TestMessagesOfAnImportAreBounded(t *testing.T) {
	a := serve(t)
	a.imports(digests)
	for _, test := range []struct {
		name string
		size int
		code codes.Code
		says string
	}{
		{"none", 0, codes.InvalidArgument, "no executable was sent"},
		{"as large as may be", 1 << 20, codes.OK, ""},
		{"larger", 1<<20 + 1, codes.InvalidArgument, "send smaller parts"},
		{"much larger", 2 << 20, codes.ResourceExhausted, "larger than max"},
	} {
		stream, err := a.client().ImportPlugin(a.context())
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&nodev1.ImportPluginRequest{Data: make([]byte, test.size)}); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		_, err = stream.CloseAndRecv()
		if status.Code(err) != test.code || (err != nil && !strings.Contains(err.Error(), test.says)) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}
