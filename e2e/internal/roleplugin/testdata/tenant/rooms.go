package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	"github.com/reeveproject/reeve/sdk/consensus"
	"github.com/reeveproject/reeve/sdk/role"
)

// house is what the role has.
type house struct {
	host *role.Host
	// kv is nil if the store is not open to the role, and shut is why.
	kv   *consensus.Client
	shut error

	mu      sync.Mutex
	watched string
	eaten   [][]byte
}

// rooms are what it does for whom.
func (h *house) rooms() http.Handler {
	mux := http.NewServeMux()
	for pattern, do := range map[string]func(*http.Request) (string, error){
		"POST /put":      h.put,
		"GET /get":       h.get,
		"POST /lease":    h.lease,
		"POST /watch":    h.watch,
		"GET /watch":     func(*http.Request) (string, error) { h.mu.Lock(); defer h.mu.Unlock(); return h.watched, nil },
		"POST /replace":  h.replace,
		"POST /daughter": daughter,
		"POST /eat":      h.eat,
		"POST /fill":     h.fill,
		"POST /keep":     h.keep,
		"GET /kept":      h.kept,
		"POST /exit":     func(*http.Request) (string, error) { os.Exit(3); return "", nil },
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			answer, err := do(r)
			if err != nil {
				http.Error(w, err.Error(), http.StatusConflict)
				return
			}
			_, _ = io.WriteString(w, answer)
		})
	}
	return mux
}

// store is the client, with as much time as a call may take: as long as whoever asks waits for it, or the seconds that he says.
func (h *house) store(r *http.Request) (*consensus.Client, context.Context, context.CancelFunc, error) {
	if h.kv == nil {
		return nil, nil, nil, fmt.Errorf("the store is not open: %w", h.shut)
	}
	ctx, cancel := r.Context(), context.CancelFunc(func() {})
	if seconds, err := strconv.Atoi(r.FormValue("within")); err == nil {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(seconds)*time.Second)
	}
	return h.kv, ctx, cancel, nil
}

// put writes a value, or one of as many bytes as it is told.
func (h *house) put(r *http.Request) (string, error) {
	kv, ctx, cancel, err := h.store(r)
	if err != nil {
		return "", err
	}
	defer cancel()
	value := r.FormValue("value")
	if size, err := strconv.Atoi(r.FormValue("size")); err == nil {
		value = strings.Repeat("x", size)
	}
	_, err = kv.Put(ctx, r.FormValue("key"), value)
	return "", named(err)
}

// named adds to an error which of the SDK's it is.
func named(err error) error {
	if errors.Is(err, consensus.ErrOverQuota) {
		return fmt.Errorf("ErrOverQuota: %w", err)
	}
	return err
}

func (h *house) get(r *http.Request) (string, error) {
	kv, ctx, cancel, err := h.store(r)
	if err != nil {
		return "", err
	}
	defer cancel()
	read, err := kv.Get(ctx, r.FormValue("key"))
	if err != nil {
		return "", err
	}
	if len(read.Kvs) == 0 {
		return "", errors.New("there is no such key")
	}
	return string(read.Kvs[0].Value), nil
}

func (h *house) lease(r *http.Request) (string, error) {
	kv, ctx, cancel, err := h.store(r)
	if err != nil {
		return "", err
	}
	defer cancel()
	_, err = kv.Grant(ctx, 3600)
	return "", named(err)
}

// watch watches the role's keys over a connection of its own, which knows nothing of the SDK and is never closed from this end. It answers when the watch is
// there; what became of it is to be asked later.
func (h *house) watch(r *http.Request) (string, error) {
	stream, err := h.host.Client().OpenConsensus(context.Background(), &hostv1.OpenConsensusRequest{})
	socket := ""
	for err == nil && socket == "" {
		var response *hostv1.OpenConsensusResponse
		if response, err = stream.Recv(); err == nil {
			socket = response.GetOpen().GetSocket()
		}
	}
	if err != nil {
		return "", err
	}
	// The bare protocol: etcd's client would try for ever to have the watch back.
	raw, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + socket}})
	if err != nil {
		return "", err
	}
	prefix := "/reeve/users/" + consensusUser
	watch, err := pb.NewWatchClient(raw.ActiveConnection()).Watch(context.Background(), grpc.WaitForReady(true))
	if err != nil {
		return "", err
	}
	// From the prefix with its slash to what sorts behind everything that has it.
	create := &pb.WatchCreateRequest{Key: []byte(prefix + "/"), RangeEnd: []byte(prefix + "0")}
	if err := watch.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: create}}); err != nil {
		return "", err
	}
	first, err := watch.Recv()
	if err != nil || first.Canceled {
		return "", fmt.Errorf("no watch: %s %w", first.GetCancelReason(), err)
	}
	set := func(text string) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.watched = text
	}
	set("open")
	go func() {
		for {
			response, err := watch.Recv()
			if err != nil || response.Canceled {
				set(fmt.Sprint("ended: ", response.GetCancelReason(), " ", err))
				return
			}
			for _, event := range response.Events {
				set("saw " + strings.TrimPrefix(string(event.Kv.Key), prefix+"/"))
			}
		}
	}()
	return socket, nil
}

// replace has the host replace a file.
func (h *house) replace(r *http.Request) (string, error) {
	ctx := r.Context()
	_, digest, err := h.host.ReadFile(ctx, r.FormValue("path"))
	if err != nil {
		return "", err
	}
	_, _, err = h.host.ReplaceFile(ctx, r.FormValue("path"), digest, []byte(r.FormValue("value")))
	return "", err
}

// daughter makes a grandchild that nobody waits for, in a session of its own, and returns its PID.
func daughter(*http.Request) (string, error) {
	child := exec.Command("/proc/self/exe", "child")
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	output, err := child.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := child.Start(); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(output).ReadString('\n')
	_ = child.Wait()
	return strings.TrimSpace(line), err
}

// eat uses so many MiB of memory, each page of it.
func (h *house) eat(r *http.Request) (string, error) {
	most, err := strconv.Atoi(r.FormValue("mib"))
	if err != nil {
		return "", err
	}
	for range most {
		piece := make([]byte, 1<<20)
		for i := 0; i < len(piece); i += 4096 {
			piece[i] = byte(i) | 1
		}
		h.eaten = append(h.eaten, piece)
	}
	runtime.KeepAlive(h.eaten)
	return "", nil
}

// fill writes to the data directory until that fails, and goes on with it: it frees nothing.
func (h *house) fill(*http.Request) (string, error) {
	file, err := os.Create(filepath.Join(h.host.DataDirectory(), "fill"))
	if err != nil {
		return "", err
	}
	go func() {
		piece := make([]byte, 1<<20)
		for {
			if _, err := file.Write(piece); err != nil {
				time.Sleep(10 * time.Millisecond)
			}
		}
	}()
	return "", nil
}

func (h *house) keep(r *http.Request) (string, error) {
	return "", os.WriteFile(filepath.Join(h.host.DataDirectory(), filepath.Base(r.FormValue("name"))), []byte(r.FormValue("value")), 0o600)
}

func (h *house) kept(r *http.Request) (string, error) {
	content, err := os.ReadFile(filepath.Join(h.host.DataDirectory(), filepath.Base(r.FormValue("name"))))
	return string(content), err
}
