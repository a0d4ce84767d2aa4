package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/reeveproject/reeve/plugins/kubernetes/internal/image"
	"github.com/reeveproject/reeve/plugins/kubernetes/internal/machine"
	"github.com/reeveproject/reeve/plugins/kubernetes/internal/podnet"
)

// sysctls are what kubelet wants of the kernel, and what the pod network does, by names as below /proc/sys.
func (w *work) sysctls() (map[string]string, error) {
	all, err := podnet.Sysctls(w.cluster.pods)
	if err != nil {
		return nil, err
	}
	maps.Copy(all, map[string]string{
		"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
		"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
	})
	return all, nil
}

// setSysctls sets them. Another node of this machine, which has the same kernel, may have put them back when it stopped to run pods.
func (w *work) setSysctls() error {
	values, err := w.sysctls()
	if err != nil {
		return err
	}
	return machine.Sysctls{File: w.at.sysctls()}.Set(values)
}

// prepare makes what the programs need of the machine.
func (w *work) prepare(ctx context.Context) error {
	for _, directory := range []string{w.at.state, w.at.data} {
		if err := os.MkdirAll(directory, 0o711); err != nil {
			return err
		}
	}
	var err error
	if w.groups, err = machine.OpenCgroups(w.at.node); err == nil {
		err = w.groups.Make()
	}
	if err == nil {
		err = w.groups.MakeBelow(shims)
	}
	if err != nil {
		return err
	}
	if slices.ContainsFunc(w.cluster.pods, func(pods netip.Prefix) bool { return pods.Addr().Is6() }) {
		if missing := machine.Check(ctx, machine.CheckConfig{IPv6: true}); len(missing) > 0 {
			return errors.New("pods are to have addresses of IPv6, for which this machine lacks something. " + strings.Join(missing, " "))
		}
	}
	return w.setSysctls()
}

// importTime is how long the import of the images that the role brings may take.
const importTime = 2 * time.Minute

// importImages waits for containerd and gives it the images that come with the role. It returns false if ctx was done before that.
func (w *work) importImages(ctx context.Context) bool {
	for told := ""; ; {
		err := w.importOwn(ctx)
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		w.host.Degraded("containerd has not the images yet that the role brings: " + err.Error())
		if told != err.Error() {
			told = err.Error()
			w.host.Logger().Debug("containerd has not the images yet that the role brings", "error", err)
		}
		if !w.group.Wait(ctx, lookStarting) {
			return false
		}
	}
}

func (w *work) importOwn(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, importTime)
	defer cancel()
	if err := w.group.Check(containerd); err != nil {
		return err
	}
	pause, err := image.Pause(runtime.GOARCH)
	if err != nil {
		return err
	}
	var archive bytes.Buffer
	if err := image.Write(&archive, pause); err != nil {
		return err
	}
	if _, err := w.Import(ctx, io.NopCloser(&archive)); err != nil {
		return err
	}
	if w.parts[image.CoreDNSArchive] == "" {
		return nil
	}
	file, err := os.Open(w.parts[image.CoreDNSArchive])
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	_, err = w.Import(ctx, file)
	return err
}

// Import implements importer: what containerd of this node has been given is an image of kubelet's.
func (w *work) Import(ctx context.Context, archive io.ReadCloser) ([]string, error) {
	w.mu.Lock()
	program := w.parts[ctr]
	w.mu.Unlock()
	if program == "" {
		return nil, errors.Join(errNoRuntime, archive.Close())
	}
	return ctrImporter{program: program, socket: w.at.socket()}.Import(ctx, archive)
}

// serveOperators answers operators until ctx is done.
func (w *work) serveOperators(ctx context.Context) {
	log := w.host.Logger().Named("operators")
	for ctx.Err() == nil {
		listener, err := listenForOperators(ctx, w.host)
		if err == nil {
			err = newOperatorService(w, w.lacks, log).serve(ctx, listener)
		}
		if ctx.Err() == nil {
			log.Warn("operators are not answered; it is tried again", "error", err)
			sleep(ctx, retry)
		}
	}
}

// healthTime is how long a program of this node may take to say how it is.
const healthTime = 2 * time.Second

// healthClient asks programs of this node, whatever proxies the environment names, and follows no redirects.
var healthClient = &http.Client{
	Transport:     &http.Transport{Proxy: nil, DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// healthy returns nil if what is served at a URL says that all is well.
func healthy(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, healthTime)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := healthClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, 4<<10))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("it answers %d: %.300s", response.StatusCode, strings.TrimSpace(string(text)))
	}
	return err
}

// command runs a program of the machine, and returns what it wrote to its standard error if it fails.
func (w *work) command(ctx context.Context, name string, arguments ...string) error {
	command := exec.CommandContext(ctx, name, arguments...)
	command.Env = []string{"PATH=" + w.path()}
	var said bytes.Buffer
	command.Stderr = &said
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s: %w: %.500s", name, err, bytes.TrimSpace(said.Bytes()))
	}
	return nil
}
