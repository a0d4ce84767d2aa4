package service_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/plugins/consensus/internal/peers"
	"github.com/reeveproject/reeve/plugins/consensus/internal/service"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// credentialsOf are those of a member for the others, as whoever copied them has them.
func credentialsOf(t *testing.T, c *cluster, id string) *tls.Config {
	t.Helper()
	directory := filepath.Join(c.root, id, "data", "peer")
	pair, err := tls.LoadX509KeyPair(filepath.Join(directory, "certificate.pem"), filepath.Join(directory, "key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(filepath.Join(directory, "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots, ServerName: peers.ServerName, MinVersion: tls.VersionTLS13}
}

// reaches reports whether a member answers who has these credentials.
func reaches(address string, config *tls.Config) error {
	transport := &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}
	answer, err := (&http.Client{Transport: transport, Timeout: storetest.Bound}).Get("https://" + address + "/version")
	if err != nil {
		return err
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s", answer.Status)
	}
	return nil
}

// TestRemovedMemberIsCutOff closes what a removed member has open with every other one, and lets it in nowhere any more.
func TestRemovedMemberIsCutOff(t *testing.T) {
	c, client := grown(t, "reeve-1", "reeve-2", "reeve-3")
	stolen := credentialsOf(t, c, "reeve-3")
	var open []net.Conn
	for _, id := range []string{"reeve-1", "reeve-2"} {
		if err := reaches(c.places[id], stolen); err != nil {
			t.Fatalf("a member does not reach %s: %v", id, err)
		}
		conn, err := tls.Dial("tcp", c.places[id], stolen)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		open = append(open, conn)
	}
	bare := stolen.Clone()
	bare.Certificates = nil
	if err := reaches(c.places["reeve-1"], bare); err == nil {
		t.Error("who has no certificate is let in")
	}
	c.nodes["reeve-3"].stop() // cut off: only the copy of what it had is used
	c.want(client, "reeve-1", "reeve-2")
	c.await(client, "the removal is done", settled("reeve-1", "reeve-2"))
	for n, conn := range open {
		// Another member than the one that tells may learn of it a moment later.
		if err := conn.SetReadDeadline(time.Now().Add(storetest.Bound)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
			t.Errorf("connection %d outlived the removal: %v", n, err)
		}
	}
	for _, id := range []string{"reeve-1", "reeve-2"} {
		if err := reaches(c.places[id], stolen); err == nil {
			t.Errorf("%s lets a removed member in", id)
		}
	}
}

// ask asks a node's role for a place as another node's would.
func (c *cluster) ask(from, to string, request *consensusv1.JoinRequest) (*consensusv1.JoinResponse, error) {
	w := &wire{node: from, directory: c.directory}
	connection, err := grpc.NewClient("passthrough:///"+to, grpc.WithTransportCredentials(w.Credentials()),
		grpc.WithContextDialer(func(ctx context.Context, node string) (net.Conn, error) { return w.Dial(ctx, node) }))
	if err != nil {
		c.t.Fatal(err)
	}
	defer connection.Close()
	return consensusv1.NewPeerServiceClient(connection).Join(storetest.Context(c.t), request)
}

func joinRequest(t *testing.T, member, address string) *consensusv1.JoinRequest {
	t.Helper()
	csr, err := peers.Files{Directory: t.TempDir()}.Request()
	if err != nil {
		t.Fatal(err)
	}
	return &consensusv1.JoinRequest{PeerAddress: address, CertificateRequest: csr, Attempt: member}
}

// TestStalledLearner gives up who never answers, says so, and takes the node in when it asks anew.
func TestStalledLearner(t *testing.T) {
	c := newCluster(t)
	asked := make(chan struct{}) // closed when all was asked that needs the learner
	giveUp := sync.OnceFunc(func() { close(asked) })
	defer giveUp()
	first := c.start("reeve-1", func(config *service.Config) {
		config.StallBound = 300 * time.Millisecond
		config.Before = func(step string) {
			if step == "give up" {
				<-asked
			}
		}
	})
	if err := first.form("new"); err != nil {
		t.Fatal(err)
	}
	client := first.client()
	c.want(client, "reeve-1", "reeve-2")
	storetest.Eventually(t, "the first one serves", func() bool { return len((&wire{directory: c.directory}).Nodes()) == 1 })

	for name, change := range map[string]func(*consensusv1.JoinRequest){
		"attempt": func(r *consensusv1.JoinRequest) { r.Attempt = "0" },
		"address": func(r *consensusv1.JoinRequest) { r.PeerAddress = "0.0.0.0:1" },
		"request": func(r *consensusv1.JoinRequest) { r.CertificateRequest = []byte("x") },
	} {
		request := joinRequest(t, "ab", "127.0.0.1:1")
		change(request)
		if _, err := c.ask("reeve-2", "reeve-1", request); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v, want InvalidArgument", name, err)
		}
	}
	for _, node := range []string{"stranger", "reeve-9"} {
		if _, err := c.ask(node, "reeve-1", joinRequest(t, "ab", "127.0.0.1:1")); status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s: %v, want PermissionDenied", node, err)
		}
	}

	request := joinRequest(t, "ab", storetest.Free(t))
	answer, err := c.ask("reeve-2", "reeve-1", request)
	if err != nil || answer.MemberId != "ab" || len(answer.Members) != 2 {
		t.Fatalf("a place: %v, %v", answer, err)
	}
	if _, err := c.ask("reeve-2", "reeve-1", joinRequest(t, "cd", storetest.Free(t))); status.Code(err) != codes.AlreadyExists && status.Code(err) != codes.Unavailable {
		t.Errorf("another attempt of the same node: %v, want AlreadyExists", err)
	}
	giveUp()
	c.await(client, "it is given up", func(s *consensusv1.StoreState) bool {
		return len(s.Members) == 2 && s.Members[1].Stuck && s.Members[1].MemberId == "" && strings.Contains(s.Members[1].Step, "given up")
	})
	if _, err := c.ask("reeve-2", "reeve-1", request); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("the attempt that was given up: %v, want FailedPrecondition", err)
	}
}

// TestCrashBetweenSteps ends the leader before each step, and has it go on.
func TestCrashBetweenSteps(t *testing.T) {
	for _, test := range []struct {
		step  string
		final []string
	}{
		{"add", []string{"reeve-1", "reeve-2"}}, {"promote", []string{"reeve-1", "reeve-2"}}, {"tell", []string{"reeve-1", "reeve-2"}},
		{"note removal", []string{"reeve-1"}}, {"remove", []string{"reeve-1"}}, {"finish removal", []string{"reeve-1"}}, {"hand over", []string{"reeve-2"}},
	} {
		step, final := test.step, test.final
		t.Run(step, func(t *testing.T) {
			c := newCluster(t)
			crashed, released := make(chan struct{}), make(chan struct{})
			var once sync.Once
			// The first one leads until it crashes, so that it is the one that takes the step.
			first := c.start("reeve-1", calm(calmElection), func(config *service.Config) {
				config.Before = func(at string) {
					if at == step {
						once.Do(func() { close(crashed); <-released })
					}
				}
			})
			if err := first.form("new"); err != nil {
				t.Fatal(err)
			}
			client := first.client()
			c.want(client, "reeve-1", "reeve-2")
			second := c.start("reeve-2", calm(calmElection))
			joined := make(chan struct{})
			go func() {
				defer close(joined)
				second.join()
			}()
			if len(final) == 1 {
				<-joined
				c.await(client, "both vote", settled("reeve-1", "reeve-2"))
				c.want(client, final...)
			}
			select {
			case <-crashed:
			case <-time.After(storetest.Bound):
				t.Fatal("the step was never taken")
			}
			first.end()
			close(released)
			first.stop()
			again := c.start("reeve-1", calm(calmElection))
			if err := again.form("existing"); err != nil && problem(err) != consensusv1.FormProblemKind_FORM_PROBLEM_KIND_STORE_MISSING {
				t.Fatal(err)
			}
			<-joined
			last := c.nodes[final[len(final)-1]].client()
			c.await(last, "it is as desired", settled(final...))
		})
	}
}

// TestCrashWhileJoining ends the one that joins at any time, again and again.
func TestCrashWhileJoining(t *testing.T) {
	c := newCluster(t)
	first := c.start("reeve-1")
	if err := first.form("new"); err != nil {
		t.Fatal(err)
	}
	client := first.client()
	c.want(client, "reeve-1", "reeve-2")
	for n := range 6 {
		joining := c.start("reeve-2")
		var forming sync.WaitGroup
		forming.Go(func() { _ = joining.form("join") })
		<-time.After(time.Duration(n) * 40 * time.Millisecond) // wherever it is by then
		joining.stop()
		forming.Wait()
	}
	c.start("reeve-2").join()
	c.await(client, "it votes", settled("reeve-1", "reeve-2"))
}
