package kubernetes_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/reeveproject/reeve/core/usertest"
)

// storeVariable names the socket and the prefix of an API server. With it in its environment the program of the tests is none of them, but a client of the store.
const storeVariable = "REEVE_E2E_STORE"

// tryStore does with etcd's client, at the socket of an API server and as its user, what an API server that somebody has taken over could try. It exits with 0 if the store lets it do what is its own, and
// nothing else; without a prefix, if the store has nothing to do with it.
func tryStore(where string) {
	socket, prefix, _ := strings.Cut(where, " ")
	problem := func() error {
		if prefix == "" {
			return refusedByStore(socket)
		}
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + socket}, Logger: zap.NewNop()})
		if err != nil {
			return err
		}
		defer func() { _ = client.Close() }()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		var problems []error
		own := prefix + "/reeve-test"
		if _, err := client.Put(ctx, own, "value"); err != nil {
			problems = append(problems, fmt.Errorf("put %s: %w", own, err))
		}
		if _, err := client.Delete(ctx, own); err != nil {
			problems = append(problems, fmt.Errorf("delete %s: %w", own, err))
		}
		denied := func(what string, err error) {
			if !errors.Is(rpctypes.Error(err), rpctypes.ErrPermissionDenied) {
				problems = append(problems, fmt.Errorf("%s: want that it is denied, got: %w", what, err))
			}
		}
		for _, foreign := range []string{"/registry/secrets", "/reeve/users/curator/nodes", "/reeve/users/kubernetes-pki/", "/reeve/users/kubernetes", "/reeve/users/kubernetes0", "\x00"} {
			_, err := client.Get(ctx, foreign)
			denied(fmt.Sprintf("get %q", foreign), err)
			_, err = client.Put(ctx, foreign, "value")
			denied(fmt.Sprintf("put %q", foreign), err)
			_, err = client.Delete(ctx, foreign)
			denied(fmt.Sprintf("delete %q", foreign), err)
			_, err = client.Txn(ctx).If(clientv3.Compare(clientv3.Version(own), "=", 0)).Then(clientv3.OpGet(foreign)).Commit()
			denied(fmt.Sprintf("get %q in a transaction", foreign), err)
		}
		_, err = client.Get(ctx, "\x00", clientv3.WithFromKey())
		denied("get all keys", err)
		_, err = client.UserList(ctx)
		denied("list users", err)
		_, err = client.MemberList(ctx)
		denied("list members", err)
		return errors.Join(problems...)
	}()
	if problem != nil {
		fmt.Println(problem)
		os.Exit(1)
	}
	os.Exit(0)
}

// refusedByStore returns nil if this process gets no answer at a socket.
func refusedByStore(socket string) error {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return nil
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	// What a client of etcd begins with. The connection may be closed already.
	_, _ = io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
	if answer, err := io.ReadAll(conn); len(answer) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("want that the connection is closed without a word, got %q, %v", answer, err)
	}
	return nil
}

// storeConfined: what an API server can do at its socket is with its own keys, and nobody else can do anything there.
func (p *plane) storeConfined(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be a client with the user ID of another")
	}
	server := p.programs(t)["kube-apiserver"]
	var socket, prefix string
	for _, argument := range server.Arguments {
		if value, ok := strings.CutPrefix(argument, "--etcd-servers=unix://"); ok {
			socket = value
		}
		if value, ok := strings.CutPrefix(argument, "--etcd-prefix="); ok {
			prefix = value
		}
	}
	if socket == "" || len(prefix) < 2 {
		t.Fatalf("the API server's socket and prefix are not in %q", server.Arguments)
	}
	try := func(uid uint32, prefix string) {
		command := exec.CommandContext(t.Context(), "/proc/self/exe")
		command.Env, command.Dir = []string{storeVariable + "=" + socket + " " + prefix}, "/"
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		if said, err := command.CombinedOutput(); err != nil {
			t.Errorf("at the socket of the API server, as user %d: %v: %s", uid, err, said)
		}
	}
	try(uint32(usertest.New(t)), "")
	try(0, "")
	if int(server.UID) == shared.Ordinary.UID {
		// All roles have one user, and are known by their process groups: this process is in none of them.
		try(server.UID, "")
		return
	}
	try(server.UID, prefix)
}
