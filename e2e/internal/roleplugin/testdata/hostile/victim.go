package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/sys/unix"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// victimState is what the victim knows of itself.
type victimState struct {
	// secret is in its memory, in a file of its data directory, in one of its runtime directory, and under one of its keys.
	secret string
	store  *etcd
	mu     sync.Mutex
	// acknowledged is how many of its numbered keys the store has said that it has; broken what the store has last refused.
	acknowledged int
	broken       string
	refusals     int
	// slowest is how long the slowest write took since the test last asked, with its tries that failed, and began when the one under way was begun; zero: none is.
	slowest time.Duration
	began   time.Time
	// visitors are user IDs that came to its door.
	visitors     []string
	lease, empty int64
}

// victim makes what others are to leave alone, and then writes to the store for as long as it lives.
func (r *runner) victim() {
	bytes := make([]byte, 16)
	_, _ = rand.Read(bytes)
	r.state.secret = "victims-secret-" + hex.EncodeToString(bytes)
	_ = os.WriteFile(r.data("secret"), []byte(r.state.secret), 0o600)
	_ = os.WriteFile(r.data("environment"), []byte("TOKEN="+r.state.secret+"\n"), 0o644)
	_ = os.WriteFile(r.runtime("secret"), []byte(r.state.secret), 0o666)
	r.door()
	go r.write()
}

// door is a socket that gives the secret to whoever comes.
func (r *runner) door() {
	path := r.runtime("door")
	_ = os.Remove(path)
	listener, err := net.Listen("unix", path)
	if err != nil {
		fmt.Fprintln(os.Stderr, "hostile: door:", err)
		return
	}
	_ = os.Chmod(path, 0o777)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			who := "somebody"
			if raw, err := conn.(*net.UnixConn).SyscallConn(); err == nil {
				_ = raw.Control(func(fd uintptr) {
					if peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
						who = fmt.Sprintf("user %d, process %d", peer.Uid, peer.Pid)
					}
				})
			}
			r.state.mu.Lock()
			r.state.visitors = append(r.state.visitors, who)
			r.state.mu.Unlock()
			_, _ = conn.Write([]byte(r.state.secret))
			_ = conn.Close()
		}
	}()
}

// write writes one numbered key after another. A key that was acknowledged is never lost.
func (r *runner) write() {
	for {
		e, err := r.store()
		if err != nil {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		r.prepareStore(e)
		for {
			r.state.mu.Lock()
			n := r.state.acknowledged
			if r.state.began.IsZero() {
				r.state.began = time.Now()
			}
			r.state.mu.Unlock()
			// For as long as it takes: a write that a busy machine answers late was not refused, and that one is answered at all the test finds out.
			_, err := e.Put(context.Background(), &pb.PutRequest{Key: fmt.Appendf(nil, "%sn/%d", victims, n), Value: []byte(strconv.Itoa(n))})
			r.state.mu.Lock()
			if err == nil {
				r.state.acknowledged++
				r.state.slowest, r.state.began = max(r.state.slowest, time.Since(r.state.began)), time.Time{}
			} else {
				r.state.refusals++
				r.state.broken = say(err)
			}
			r.state.mu.Unlock()
			time.Sleep(50 * time.Millisecond)
		}
	}
}

// prepareStore makes the secret key and two leases: one with a key and one without.
func (r *runner) prepareStore(e *etcd) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	with, err := e.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: 3600})
	if err != nil {
		return
	}
	without, err := e.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: 3600})
	if err != nil {
		return
	}
	_, err = e.Put(ctx, &pb.PutRequest{Key: []byte(victims + "secret"), Value: []byte(r.state.secret)})
	if err == nil {
		_, err = e.Put(ctx, &pb.PutRequest{Key: []byte(victims + "leased"), Value: []byte("mine"), Lease: with.GetID()})
	}
	r.state.mu.Lock()
	defer r.state.mu.Unlock()
	if err == nil {
		r.state.store, r.state.lease, r.state.empty = e, with.GetID(), without.GetID()
	}
}

// victimOrders are asked of the victim by the test.
var victimOrders = map[string]func(*attempt){
	"victim.state": func(a *attempt) {
		s := &a.state
		s.mu.Lock()
		defer s.mu.Unlock()
		a.result.Values["secret"] = s.secret
		a.result.Values["lease"], a.result.Values["empty"] = strconv.FormatInt(s.lease, 10), strconv.FormatInt(s.empty, 10)
		a.result.Values["acknowledged"], a.result.Values["broken"] = strconv.Itoa(s.acknowledged), s.broken
		a.result.Values["refusals"] = strconv.Itoa(s.refusals)
		if !s.began.IsZero() {
			s.slowest = max(s.slowest, time.Since(s.began))
		}
		a.result.Values["slowest"], s.slowest = s.slowest.Round(time.Millisecond).String(), 0
		a.result.Values["pid"] = strconv.Itoa(os.Getpid())
		a.result.Values["runtime"], a.result.Values["data"] = a.start.GetRuntimeDirectory(), a.start.GetDataDirectory()
		a.result.Values["host"], a.result.Values["socket"] = a.start.GetHostSocket(), a.plugin.socket
		a.result.Values["address"] = fmt.Sprintf("%p", []byte(s.secret))
	},
	"victim.check": checkVictim,
	// What was wrong is put right, so that it is not told again of every later attempt.
	"victim.renew": func(a *attempt) {
		s := &a.state
		s.mu.Lock()
		e := s.store
		s.visitors = nil
		s.mu.Unlock()
		_ = os.WriteFile(a.data("secret"), []byte(s.secret), 0o600)
		_ = os.WriteFile(a.runtime("secret"), []byte(s.secret), 0o666)
		if e != nil {
			ctx, cancel := short()
			defer cancel()
			_, _ = e.DeleteRange(ctx, &pb.DeleteRangeRequest{Key: []byte(victims + "new")})
			a.prepareStore(e)
		}
	},
}

// checkVictim looks whether everything is as it was, and whether the victim can work.
func checkVictim(a *attempt) {
	s := &a.state
	s.mu.Lock()
	e, acknowledged, visitors := s.store, s.acknowledged, fmt.Sprint(s.visitors)
	secret, lease, empty := s.secret, s.lease, s.empty
	s.mu.Unlock()
	wrong := func(format string, arguments ...any) {
		a.result.Tries = append(a.result.Tries, try{What: fmt.Sprintf(format, arguments...), Answer: "wrong", Through: true})
	}
	if visitors != "[]" {
		wrong("visitors came to its door: %s", visitors)
	}
	for path, want := range map[string]string{a.data("secret"): secret, a.data("environment"): "TOKEN=" + secret + "\n", a.runtime("secret"): secret} {
		if content, err := os.ReadFile(path); err != nil || string(content) != want {
			wrong("%s is %q (%v)", path, content, err)
		}
	}
	if e == nil {
		wrong("it has no store yet")
		return
	}
	// The time of the whole order ends what hangs.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	read, err := e.Range(ctx, &pb.RangeRequest{Key: []byte(victims), RangeEnd: []byte(victimsEnd)})
	if err != nil {
		wrong("it cannot read its keys: %s", say(err))
		return
	}
	values := make(map[string]string)
	for _, pair := range read.GetKvs() {
		values[string(pair.GetKey())] = string(pair.GetValue())
	}
	for n := range acknowledged {
		if key := fmt.Sprintf("%sn/%d", victims, n); values[key] != strconv.Itoa(n) {
			wrong("the acknowledged key %s is %q", key, values[key])
			break
		}
	}
	if values[victims+"secret"] != secret || values[victims+"leased"] != "mine" || values[victims+"new"] != "" {
		wrong("its keys are others: %q %q %q", values[victims+"secret"], values[victims+"leased"], values[victims+"new"])
	}
	for _, id := range []int64{lease, empty} {
		left, err := e.LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: id, Keys: true})
		switch {
		case err != nil:
			wrong("its lease: %s", say(err))
		case left.GetTTL() <= 0:
			wrong("its lease %x is gone", id)
		case id == empty && len(left.GetKeys()) > 0:
			wrong("its empty lease has keys of others: %q", left.GetKeys())
		}
	}
	if err := drop(e.Put(ctx, &pb.PutRequest{Key: []byte(victims + "check"), Value: []byte("v")})); err != nil {
		wrong("it cannot write: %s", say(err))
	}
	a.canWork(wrong)
}

// canWork tries what every role needs of the machine and of the core.
func (a *attempt) canWork(wrong func(string, ...any)) {
	if err := os.WriteFile(a.data("work"), make([]byte, 4096), 0o600); err != nil {
		wrong("it cannot write a file: %s", say(err))
	}
	if fd, err := unix.InotifyInit1(unix.IN_CLOEXEC); err != nil {
		wrong("inotify: %s", say(err))
	} else {
		_ = unix.Close(fd)
	}
	var pipe [2]int
	if err := syscall.Pipe2(pipe[:], syscall.O_CLOEXEC); err != nil {
		wrong("pipe: %s", say(err))
	} else {
		_, _ = syscall.Close(pipe[0]), syscall.Close(pipe[1])
	}
	if pid, err := forkSleeper(); err != nil {
		wrong("fork: %s", say(err))
	} else {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		_, _ = syscall.Wait4(pid, nil, 0, nil)
	}
	conn, err := dial(a.start.GetHostSocket())
	if err != nil {
		wrong("host socket: %s", say(err))
		return
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stream, err := hostv1.NewHostServiceClient(conn).WatchNetwork(ctx, &hostv1.WatchNetworkRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		wrong("a host call: %s", say(err))
	}
}
