package worker

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/proto/identity"
	"github.com/reeveproject/reeve/sdk/leaktest"
	"github.com/reeveproject/reeve/sdk/roletest"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	kubernetesv1 "github.com/reeveproject/reeve/proto/reeve/kubernetes/v1"
)

const servicePatience = 2 * time.Minute

const ownerKeyID = "00112233445566778899aabbccddeeff"

// The operators of the tests.
var (
	theOwner = identity.Session{ID: ownerKeyID}
	operates = identity.Session{Operator: "alice", ID: "0000000a"}
	looks    = identity.Session{Operator: "bob", ID: "0000000b"}
	owns     = identity.Session{Operator: "carol", ID: "0000000c"}
)

// fakeImporter does with an archive what a test wants.
type fakeImporter func(context.Context, io.ReadCloser) ([]string, error)

func (f fakeImporter) Import(ctx context.Context, archive io.ReadCloser) ([]string, error) {
	references, err := f(ctx, archive)
	if err != nil {
		_ = archive.Close()
	}
	return references, err
}

// served is a service that operators of a cluster reach.
type served struct {
	*operatorService
	t         *testing.T
	authority *roletest.Authority
	address   string
	// stop has the role stop, and ended is closed when it has.
	stop  context.CancelFunc
	ended chan struct{}
}

// newServed serves what change makes of a service.
func newServed(t *testing.T, images importer, change func(*operatorService)) *served {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { leaktest.VerifyNone(t, before) })
	host := roletest.NewCluster(t, 1).Host(0)
	host.GrantOperators()
	host.Operators.Set(&hostv1.Operators{OwnerKeyId: ownerKeyID, Operators: []*hostv1.Operator{
		{Name: "alice", Id: "0000000a", Role: hostv1.OperatorRole_OPERATOR_ROLE_OPERATOR},
		{Name: "bob", Id: "0000000b", Role: hostv1.OperatorRole_OPERATOR_ROLE_VIEWER},
		{Name: "carol", Id: "0000000c", Role: hostv1.OperatorRole_OPERATOR_ROLE_OWNER},
	}})
	instance := host.Instance(t, "kubernetes-worker")
	listener, err := listenForOperators(t.Context(), instance)
	if err != nil {
		t.Fatal(err)
	}
	missing := []*kubernetesv1.Missing{{What: "the program nft", Remedy: "install nftables"}}
	s := &served{
		operatorService: newOperatorService(images, func(context.Context) []*kubernetesv1.Missing { return missing }, instance.Logger()),
		t:               t, authority: host.Authority(), address: listener.Addr().String(), ended: make(chan struct{}),
	}
	if change != nil {
		change(s.operatorService)
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	go func() {
		defer close(s.ended)
		if err := s.serve(ctx, listener); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() {
		stop()
		<-s.ended
	})
	return s
}

// as is the service for an operator.
func (s *served) as(session identity.Session) kubernetesv1.WorkerServiceClient {
	s.t.Helper()
	session.Ends = time.Now().Add(time.Hour).Truncate(time.Second)
	certificate, err := s.authority.Session(session)
	if err != nil {
		s.t.Fatal(err)
	}
	conn, err := grpc.NewClient("passthrough:///"+s.address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}, InsecureSkipVerify: true, // who serves is not what is tested here
	})))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	return kubernetesv1.NewWorkerServiceClient(conn)
}

type upload = grpc.ClientStreamingClient[kubernetesv1.LoadImageRequest, kubernetesv1.LoadImageResponse]

// begin begins to send an archive.
func begin(ctx context.Context, t *testing.T, client kubernetesv1.WorkerServiceClient) upload {
	t.Helper()
	stream, err := client.LoadImage(ctx, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// send sends some of an archive. What the service has ended is seen with the answer.
func send(t *testing.T, stream upload, some []byte) {
	t.Helper()
	for chunk := range slices.Chunk(some, 100_000) {
		if err := stream.Send(&kubernetesv1.LoadImageRequest{Chunk: chunk}); err != nil {
			if !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			return
		}
	}
}

// load sends an archive.
func load(t *testing.T, client kubernetesv1.WorkerServiceClient, archive []byte) (*kubernetesv1.LoadImageResponse, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), servicePatience)
	defer cancel()
	stream := begin(ctx, t, client)
	send(t, stream, archive)
	return stream.CloseAndRecv()
}

// tarOf is an archive with one file of a size, which cannot be compressed.
func tarOf(t *testing.T, size int) []byte {
	t.Helper()
	content := make([]byte, size)
	_, _ = rand.Read(content)
	return tarWith(t, content)
}

func tarWith(t *testing.T, content []byte) []byte {
	t.Helper()
	var archive bytes.Buffer
	writer := tar.NewWriter(&archive)
	err := writer.WriteHeader(&tar.Header{Name: "layer", Mode: 0o644, Size: int64(len(content))})
	if err == nil {
		_, err = writer.Write(content)
	}
	if err := errors.Join(err, writer.Close()); err != nil {
		t.Fatal(err)
	}
	return archive.Bytes()
}

func zip(t *testing.T, what []byte) []byte {
	t.Helper()
	var zipped bytes.Buffer
	writer := gzip.NewWriter(&zipped)
	_, err := writer.Write(what)
	if err := errors.Join(err, writer.Close()); err != nil {
		t.Fatal(err)
	}
	return zipped.Bytes()
}

const busybox = "docker.io/library/busybox:latest"

func TestLoadImage(t *testing.T) {
	var got []byte
	s := newServed(t, fakeImporter(func(_ context.Context, archive io.ReadCloser) ([]string, error) {
		var err error
		got, err = io.ReadAll(archive)
		return []string{busybox}, err
	}), nil)
	sent := tarOf(t, 1<<20)
	for _, session := range []identity.Session{theOwner, operates, owns} {
		for name, archive := range map[string][]byte{"a tar": sent, "a tar with more behind it": append(slices.Clone(sent), make([]byte, 100_000)...), "compressed": zip(t, sent)} {
			got = nil
			response, err := load(t, s.as(session), archive)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if !slices.Equal(response.GetReferences(), []string{busybox}) || response.GetBytes() != uint64(len(archive)) {
				t.Errorf("%s: the answer is %v", name, response)
			}
			if !bytes.HasPrefix(got, sent) {
				t.Errorf("%s: %d bytes were imported, and not those of the archive", name, len(got))
			}
		}
	}
	got = nil
	if _, err := load(t, s.as(looks), sent); status.Code(err) != codes.PermissionDenied {
		t.Errorf("who may only look loads an image: %v", err)
	}
	if got != nil {
		t.Error("an archive was imported for who may not")
	}
	for _, session := range []identity.Session{theOwner, operates, looks} {
		response, err := s.as(session).Check(t.Context(), &kubernetesv1.CheckRequest{}, grpc.WaitForReady(true))
		if err != nil || len(response.GetMissing()) != 1 || response.GetMissing()[0].GetWhat() != "the program nft" {
			t.Errorf("%s: %v, %v", session.Operator, response, err)
		}
	}
}

func TestLoadImageRefused(t *testing.T) {
	var answer error
	names := []string{busybox}
	s := newServed(t, fakeImporter(func(_ context.Context, archive io.ReadCloser) ([]string, error) {
		_, err := io.Copy(io.Discard, archive)
		return names, errors.Join(err, answer)
	}), func(s *operatorService) { s.largest = 1 << 20 })
	good := tarOf(t, 100_000)
	damaged := zip(t, good)
	damaged[len(damaged)-6] ^= 1 // its checksum
	for _, test := range []struct {
		name    string
		archive []byte
		answer  error
		names   []string
		code    codes.Code
		says    string
	}{
		{"nothing", nil, nil, names, codes.InvalidArgument, "is empty"},
		{"a text", []byte("FROM scratch\n"), nil, names, codes.InvalidArgument, "no archive of images"},
		{"what is no tar", make([]byte, 4096), nil, names, codes.InvalidArgument, "no archive of images"},
		{"compressed, and no tar", zip(t, make([]byte, 4096)), nil, names, codes.InvalidArgument, "no archive of images"},
		{"compressed, and cut", zip(t, good)[:50_000], nil, names, codes.InvalidArgument, "damaged"},
		{"compressed, and cut at once", zip(t, good)[:5], nil, names, codes.InvalidArgument, "damaged"},
		{"compressed, and damaged", damaged, nil, names, codes.InvalidArgument, "damaged"},
		{"too large", tarOf(t, 2<<20), nil, names, codes.ResourceExhausted, "larger than"},
		{"compressed, and too large when it is not", zip(t, tarWith(t, make([]byte, 8<<20))), nil, names, codes.ResourceExhausted, "larger than"},
		{"an image without a name", good, nil, nil, codes.InvalidArgument, "names no image"},
		{"no container runtime", good, errNoRuntime, names, codes.FailedPrecondition, "does not run"},
		{"one that does not take it", good, errors.New("no space left"), names, codes.Internal, "no space left"},
	} {
		answer, names = test.answer, test.names
		response, err := load(t, s.as(operates), test.archive)
		if status.Code(err) != test.code || !strings.Contains(status.Convert(err).Message(), test.says) {
			t.Errorf("%s: %v, %v", test.name, response, err)
		}
	}
	// Nobody is left who would be in the way of others.
	answer, names = nil, []string{busybox}
	for range maxLoads + 1 {
		if _, err := load(t, s.as(operates), good); err != nil {
			t.Error(err)
		}
	}
}

// TestBrokenOff: what does not come to its end is not taken for whole, whoever ends it.
func TestBrokenOff(t *testing.T) {
	type ending struct {
		read  error
		cause error
	}
	imports := make(chan struct{}, 1)
	ended := make(chan ending, 1)
	newService := func(t *testing.T, change func(*operatorService)) *served {
		return newServed(t, fakeImporter(func(ctx context.Context, archive io.ReadCloser) ([]string, error) {
			imports <- struct{}{}
			_, err := io.Copy(io.Discard, archive)
			<-ctx.Done()
			ended <- ending{err, context.Cause(ctx)}
			return []string{busybox}, err
		}), change)
	}
	whole := tarOf(t, 1<<20)
	half := whole[:len(whole)/2]
	check := func(t *testing.T) {
		t.Helper()
		if how := <-ended; how.read == nil || how.cause == nil {
			t.Errorf("half an archive was read to its end: %+v", how)
		}
	}
	t.Run("by the sender", func(t *testing.T) {
		s := newService(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stream := begin(ctx, t, s.as(operates))
		send(t, stream, half)
		<-imports
		cancel()
		check(t)
	})
	t.Run("by a sender that ended when all had come, and had not said so", func(t *testing.T) {
		s := newService(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stream := begin(ctx, t, s.as(operates))
		send(t, stream, whole)
		<-imports
		cancel()
		check(t)
	})
	// silent replaces the timer: the test itself ends the wait for a chunk.
	silent := func() (change func(*operatorService), waits <-chan func()) {
		all := make(chan func(), 100)
		return func(s *operatorService) {
			s.watch = func(expired func()) func() {
				all <- expired
				return func() {}
			}
		}, all
	}
	t.Run("by silence", func(t *testing.T) {
		change, waits := silent()
		s := newService(t, change)
		stream := begin(t.Context(), t, s.as(operates))
		send(t, stream, half)
		<-imports
		(<-waits)()
		check(t)
		if err := stream.RecvMsg(&kubernetesv1.LoadImageResponse{}); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("the sender is told %v", err)
		}
	})
	t.Run("by silence from the beginning", func(t *testing.T) {
		change, waits := silent()
		s := newService(t, change)
		stream := begin(t.Context(), t, s.as(operates))
		(<-waits)()
		if err := stream.RecvMsg(&kubernetesv1.LoadImageResponse{}); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("the sender is told %v", err)
		}
	})
	t.Run("by the role", func(t *testing.T) {
		s := newService(t, nil)
		stream := begin(t.Context(), t, s.as(operates))
		send(t, stream, half)
		<-imports
		s.stop()
		check(t)
		if err := stream.RecvMsg(&kubernetesv1.LoadImageResponse{}); status.Code(err) != codes.Unavailable {
			t.Errorf("the sender is told %v", err)
		}
		<-s.ended
	})
}

// TestLoadsAtATime: there are as many as may be, and the next one is refused until one of them is done.
func TestLoadsAtATime(t *testing.T) {
	imports, goOn := make(chan struct{}, maxLoads+1), make(chan struct{})
	s := newServed(t, fakeImporter(func(_ context.Context, archive io.ReadCloser) ([]string, error) {
		imports <- struct{}{}
		<-goOn
		_, err := io.Copy(io.Discard, archive)
		return []string{busybox}, err
	}), nil)
	archive := tarOf(t, 10_000)
	results := make(chan error, maxLoads)
	for range maxLoads {
		client := s.as(operates)
		go func() {
			_, err := load(t, client, archive)
			results <- err
		}()
	}
	for range maxLoads {
		<-imports
	}
	if _, err := load(t, s.as(operates), archive); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "try again") {
		t.Errorf("one more: %v", err)
	}
	close(goOn)
	for range maxLoads {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if _, err := load(t, s.as(operates), archive); err != nil {
		t.Errorf("when they are done: %v", err)
	}
}

// withCtr makes a program in the place of ctr, and the socket of a containerd that does nothing.
func withCtr(t *testing.T, script string) ctrImporter {
	t.Helper()
	directory, err := os.MkdirTemp("/tmp", "rv")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(directory) })
	c := ctrImporter{program: filepath.Join(directory, "ctr"), socket: filepath.Join(directory, "containerd.sock")}
	if err := os.WriteFile(c.program, []byte("#!/bin/sh\ncd "+directory+"\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", c.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return c
}

// TestCtr runs programs in the place of ctr, which do what it does.
func TestCtr(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { leaktest.VerifyNone(t, before) })
	ctx, cancel := context.WithTimeout(t.Context(), servicePatience)
	defer cancel()
	archive := tarOf(t, 2<<20)
	open := func() io.ReadCloser { return io.NopCloser(bytes.NewReader(archive)) }
	const digest = "(sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef)"

	c := withCtr(t, `case "$*" in *" images label "*) echo "$@" >>labels; exit;; esac
echo "$@" >arguments; cat >got; env >environment
echo "unpacking `+busybox+` `+digest+`...done"; echo "unpacking reeve.internal/hello:1 `+digest+`...done"; echo "unpacking `+busybox+` `+digest+`...done"`)
	c.snapshotter = "native"
	names, err := c.Import(ctx, open())
	if err != nil || !slices.Equal(names, []string{busybox, "reeve.internal/hello:1"}) {
		t.Fatalf("%q, %v", names, err)
	}
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(filepath.Dir(c.program), name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if want := "--address " + c.socket + " --namespace k8s.io images import --local --snapshotter native -\n"; read("arguments") != want {
		t.Errorf("it is called with %q", read("arguments"))
	}
	labels := ""
	for _, name := range names {
		labels += "--address " + c.socket + " --namespace k8s.io images label " + name + " io.cri-containerd.pinned=pinned\n"
	}
	if read("labels") != labels {
		t.Errorf("what was loaded is kept by %q, want %q", read("labels"), labels)
	}
	if read("got") != string(archive) {
		t.Error("it is given something else than the archive")
	}
	if strings.Contains(read("environment"), "HOME=") {
		t.Errorf("its environment is %s", read("environment"))
	}

	// It need not read what is behind the end of the archive.
	c = withCtr(t, `head -c 1000 >/dev/null; echo "unpacking `+busybox+` `+digest+`...done"`)
	rest := open()
	if names, err := c.Import(ctx, rest); err != nil || len(names) != 1 {
		t.Errorf("what reads no more than it needs: %q, %v", names, err)
	} else if n, _ := io.Copy(io.Discard, rest); n > 0 {
		t.Errorf("%d bytes are left", n)
	}

	for name, test := range map[string]struct {
		script, says string
		is           error
	}{
		"one that fails":           {`cat >/dev/null; echo 'level=warning msg=old' >&2; echo 'ctr: unrecognized image format' >&2; exit 1`, "does not take the archive: unrecognized image format", nil},
		"one that fails at once":   {`exit 3`, "exit status 3", nil},
		"one that imports nothing": {`cat >/dev/null`, "names no image", errNoName},
	} {
		if _, err := withCtr(t, test.script).Import(ctx, open()); err == nil || !strings.Contains(err.Error(), test.says) || test.is != nil && !errors.Is(err, test.is) {
			t.Errorf("%s: %v", name, err)
		}
	}

	t.Run("without containerd", func(t *testing.T) {
		c := withCtr(t, `cat >/dev/null`)
		c.socket += ".not"
		if _, err := c.Import(ctx, open()); !errors.Is(err, errNoRuntime) {
			t.Error(err)
		}
	})
	t.Run("without ctr", func(t *testing.T) {
		c := withCtr(t, ``)
		c.program += ".not"
		if _, err := c.Import(ctx, open()); err == nil || !strings.Contains(err.Error(), "cannot be started") {
			t.Error(err)
		}
	})
	// A program that fails while the sender is silent is not waited for longer than it lives.
	t.Run("one that fails before anything came", func(t *testing.T) {
		reader, writer := io.Pipe()
		if _, err := withCtr(t, `exit 3`).Import(ctx, reader); err == nil {
			t.Error("it is no error")
		}
		if _, err := writer.Write([]byte("x")); err == nil {
			t.Error("the archive is not closed")
		}
	})
	// What is broken off is not finished: the program is killed, and sees no end.
	for name, how := range map[string]func(*io.PipeWriter, context.CancelCauseFunc, error){
		"by the archive": func(writer *io.PipeWriter, _ context.CancelCauseFunc, why error) { _ = writer.CloseWithError(why) },
		"by the caller":  func(_ *io.PipeWriter, cancel context.CancelCauseFunc, why error) { cancel(why) },
	} {
		t.Run("broken off "+name, func(t *testing.T) {
			c := withCtr(t, `while read -r line; do :; done; echo whole >whole`)
			ctx, cancel := context.WithCancelCause(ctx)
			defer cancel(nil)
			why := errors.New("it was broken off")
			reader, writer := io.Pipe()
			done := make(chan error, 1)
			go func() {
				_, err := c.Import(ctx, reader)
				done <- err
			}()
			if _, err := writer.Write([]byte("begun")); err != nil {
				t.Fatal(err)
			}
			how(writer, cancel, why)
			if err := <-done; !errors.Is(err, why) {
				t.Errorf("the error is %v", err)
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(c.program), "whole")); err == nil {
				t.Error("it has seen the end of what was broken off")
			}
		})
	}
}
