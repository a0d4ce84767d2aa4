package measures

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/e2e/bench"
)

// beside is a control plane of Kubernetes in a cluster, and what an API server by hand takes beside it: its own store, on the same disk.
type beside struct {
	*kubernetes
	configuration string
	store         *bareStore
	storeAt       place
	hand          *byHand
}

// newBeside returns when the control plane is Ready.
func (b *Bed) newBeside(ctx context.Context) (s *beside, err error) {
	s = &beside{}
	if s.kubernetes, err = b.newKubernetes(ctx, nil, []string{"--without", kubernetesWorker + ":privileged"}); err != nil {
		return nil, err
	}
	if err := s.prepare(ctx); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *beside) prepare(ctx context.Context) (err error) {
	if s.configuration, err = s.configureController(); err != nil {
		return err
	}
	if _, err = s.reeve(ctx, "node", "role", "add", "self", kubernetesPKI); err != nil {
		return err
	}
	if _, err = s.reeve(ctx, "node", "role", "add", "self", kubernetesController, "--config", s.configuration, "--timeout", "3m"); err != nil {
		return err
	}
	if _, err = s.reeve(ctx, "kubernetes", "kubeconfig", "--file", s.kubeconfig()); err != nil {
		return err
	}
	if s.storeAt, err = s.bed.place(); err != nil {
		return err
	}
	if err := sameDevice(s.storeAt.work, filepath.Join(s.at.work, "d")); err != nil {
		return err
	}
	if s.store, err = s.bed.startBareStore(ctx, s.storeAt); err != nil {
		return err
	}
	s.hand, err = s.newByHand("http://" + s.store.address)
	return err
}

func (s *beside) close() (err error) {
	if s.hand != nil {
		err = s.hand.close()
	}
	if s.store != nil {
		err = errors.Join(err, s.store.stop())
	}
	if s.storeAt.work != "" {
		err = errors.Join(err, s.storeAt.remove())
	}
	return errors.Join(err, s.kubernetes.close())
}

// controlPlane compares how long it takes until an API server is ready: from the command that gives a node the control plane, and from the execution of the same server with
// the same arguments by hand. Both find what an earlier one has left in their stores, and only one runs at a time.
func (b *Bed) controlPlane(ctx context.Context, say func(string, ...any)) (results []bench.Result, err error) {
	warm, count := b.count(2, 12)
	s, err := b.newBeside(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	// It is good for a quarter of an hour, and asked for while the control plane runs.
	client, err := s.apiClient(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { client.close() }()
	remove := func(ctx context.Context) error {
		_, err := s.reeve(ctx, "node", "role", "remove", "self", kubernetesController)
		return err
	}
	if err := remove(ctx); err != nil {
		return nil, err
	}
	ours := func(ctx context.Context) (float64, error) {
		begun := time.Now()
		if _, err := s.reeve(ctx, "node", "role", "add", "self", kubernetesController, "--config", s.configuration, "--wait=none"); err != nil {
			return 0, err
		}
		if err := client.awaitReady(ctx, s.ports[0], nil); err != nil {
			return 0, err
		}
		took := time.Since(begun)
		client.close()
		next, err := s.apiClient(ctx)
		if err != nil {
			return 0, err
		}
		client = next
		return milliseconds(took), remove(ctx)
	}
	theirs := func(ctx context.Context) (took float64, err error) {
		begun := time.Now()
		server, err := s.hand.start()
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, server.stop()) }()
		if err := client.awaitReady(ctx, s.hand.port, server.ended); err != nil {
			return 0, fmt.Errorf("%w\n%s", err, server.lastLines())
		}
		took = milliseconds(time.Since(begun))
		client.close()
		return took, nil
	}
	say("%d pairs", count)
	pairs, err := bench.Interleave(ctx, warm, count, ours, theirs)
	if err != nil {
		return nil, err
	}
	return []bench.Result{bench.OfPairs(bench.Result{
		Name: "/readyz", What: "`reeve node role add self kubernetes-controller` to 200 of the API server's /readyz",
		Against: "exec of the same kube-apiserver with the same arguments on a bare etcd to the same", Unit: "ms",
		Notes: []string{"kube-controller-manager and kube-scheduler are started on the one side only; both stores hold what the API server wrote when it was first started"},
	}, bench.MedianRatio, bench.AtMost(1.3), pairs)}, nil
}

// apiWrites compares how long the API server takes for a write: in the cluster, where etcd confines it to its keys and asks the kernel at its socket who it is, and the same server by hand
// at a store that knows neither users nor bounds, which is all that root has. Both run all the time, and one is at work at a time.
func (b *Bed) apiWrites(ctx context.Context, say func(string, ...any)) (results []bench.Result, err error) {
	warm, count := b.count(4, 60)
	slice := b.lasting(time.Second)
	s, err := b.newBeside(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	client, err := s.hand.supervisor()
	if err != nil {
		return nil, err
	}
	defer client.close()
	server, err := s.hand.start()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	for _, port := range []int{s.ports[0], s.hand.port} {
		if err := client.awaitReady(ctx, port, server.ended); err != nil {
			return nil, err
		}
	}
	// There are none beside the one by hand.
	for n, name := range []string{"kube-controller-manager", "kube-scheduler"} {
		stopped, err := program(name, s.ports[n+1])
		if err != nil {
			return nil, err
		}
		if err := unix.Kill(stopped.PID, unix.SIGSTOP); err != nil {
			return nil, err
		}
		defer func() { _ = unix.Kill(stopped.PID, unix.SIGCONT) }()
	}
	side := func(port int) bench.Side {
		return func(ctx context.Context) (float64, error) { return client.write(ctx, port, slice) }
	}
	say("%d pairs of %s each", count, slice)
	pairs, err := bench.Interleave(ctx, warm, count, side(s.ports[0]), side(s.hand.port))
	if err != nil {
		return nil, err
	}
	return []bench.Result{bench.OfPairs(bench.Result{
		Name: "write, p50", What: "how long half of the updates of a ConfigMap took at most, by the API server of the cluster",
		Against: "the same by the same API server on a bare etcd without users", Unit: "ms",
		Notes: []string{fmt.Sprintf("slices of %s, one update at a time, values of 256 bytes, fsync on; kube-controller-manager and kube-scheduler stand still meanwhile", slice)},
	}, bench.MedianRatio, bench.AtMost(1.05), pairs)}, nil
}

// write updates an object for so long, one update after another, and returns the median of how long they took, in milliseconds.
func (c *apiClient) write(ctx context.Context, port int, lasting time.Duration) (float64, error) {
	const path = "/api/v1/namespaces/default/configmaps"
	// It is there already but for the first time.
	var there *answerError
	if err := c.ask(ctx, http.MethodPost, port, path, configMap(0)); err != nil && !(errors.As(err, &there) && there.status == http.StatusConflict) {
		return 0, fmt.Errorf("an object cannot be made: %w", err)
	}
	var took []float64
	for end, n := time.Now().Add(lasting), 0; time.Now().Before(end) || n < 5; n++ {
		begun := time.Now()
		if err := c.ask(ctx, http.MethodPut, port, path+"/bench", configMap(begun.UnixNano())); err != nil {
			return 0, fmt.Errorf("an object cannot be updated: %w", err)
		}
		took = append(took, milliseconds(time.Since(begun)))
	}
	return bench.Median(took), nil
}

func configMap(number int64) string {
	return fmt.Sprintf(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "bench"}, "data": {"value": "%0256d"}}`, number)
}
