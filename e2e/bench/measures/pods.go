package measures

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/e2e/bench"
	"github.com/reeveproject/reeve/e2e/internal/procfs"
)

// helloImage is the image of the program to try a cluster with.
const helloImage = "reeve.internal/hello:1"

// pods measures how long it takes on a node that has never run Kubernetes from the command that gives it the control plane until a pod is ready, and how much memory the whole node takes then. An
// operator's commands follow one another as the page "Run Kubernetes" has them.
func (b *Bed) pods(ctx context.Context, say func(string, ...any)) (results []bench.Result, err error) {
	count, settle := 5, b.lasting(30*time.Second)
	if b.Quick {
		count = 1
	}
	parts := filepath.Join(b.Programs.Directory, "kubernetes")
	switch _, err := os.Stat(filepath.Join(parts, "hello.tar")); {
	case os.Geteuid() != 0:
		return nil, fmt.Errorf("%w: workers need root", bench.ErrCannotRun)
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: the programs of a worker were not built (make deps-kubernetes)", bench.ErrCannotRun)
	}
	var took, ready, memory []float64
	var most freshSample
	for n := range count {
		say("fresh node %d of %d", n+1, count)
		sample, err := b.freshPod(ctx, parts, settle)
		if err != nil {
			return nil, err
		}
		took, ready, memory = append(took, sample.running.Seconds()), append(ready, sample.worker.Seconds()), append(memory, sample.memory)
		if sample.memory > most.memory {
			most = sample
		}
	}
	return []bench.Result{
		bench.OfSamples(bench.Result{
			Name: "pod ready", What: "both roles added to a fresh node until a pod is ready, with the commands of the page", Unit: "s", Notes: []string{"of all fresh nodes the slowest; the image is loaded meanwhile"},
		}, bench.Largest, bench.AtMost(25), took),
		bench.OfSamples(bench.Result{Name: "worker Ready", What: "the same until the worker is Ready", Unit: "s"}, bench.Largest, bench.Any(), ready),
		bench.OfSamples(bench.Result{
			Name: "node, proportional", What: "proportional set size of all processes of the node: Reeve's, of the control plane, of the worker, and three pods", Unit: "MB",
			Notes: []string{fmt.Sprintf("MB are 10^6 bytes; %s after the pod is ready; CoreDNS is two of the pods; of all fresh nodes the one with the most", settle), most.programs()},
		}, bench.Largest, bench.AtMost(700), memory),
	}, nil
}

// freshSample is what was measured on a fresh node.
type freshSample struct {
	worker, running time.Duration
	memory          float64
	// of is the memory by program, and count how many processes of each there were.
	of    map[string]float64
	count map[string]int
}

// programs says how much of the memory each program has, those with the most first.
func (s freshSample) programs() string {
	names := slices.SortedFunc(maps.Keys(s.of), func(a, b string) int { return cmp.Compare(s.of[b], s.of[a]) })
	for n, name := range names {
		times := ""
		if s.count[name] > 1 {
			times = fmt.Sprintf(" (%d)", s.count[name])
		}
		names[n] = fmt.Sprintf("%s%s %.0f", name, times, s.of[name])
	}
	return "by program, in MB: " + strings.Join(names, ", ")
}

func (b *Bed) freshPod(ctx context.Context, parts string, settle time.Duration) (sample freshSample, err error) {
	k, err := b.newKubernetes(ctx, []string{"--netns"}, []string{"--privileged"})
	if err != nil {
		return sample, err
	}
	defer func() { err = errors.Join(err, k.close()) }()
	configuration := filepath.Join(k.at.work, "worker.json")
	document, err := json.Marshal(map[string]any{
		"partsDirectories": []string{parts, "/usr/sbin", "/usr/bin"},
		// The machine's disk may be as full as it likes.
		"kubeletArguments": []string{"--eviction-hard=memory.available<100Mi,nodefs.available<1%,imagefs.available<1%,nodefs.inodesFree<1%"},
	})
	if err != nil {
		return sample, err
	}
	if err := os.WriteFile(configuration, document, 0o600); err != nil {
		return sample, err
	}
	begun := time.Now()
	if _, err := k.reeve(ctx, "node", "role", "add", "self", kubernetesController, "--with-required", "--wait=none"); err != nil {
		return sample, err
	}
	if _, err := k.reeve(ctx, "node", "role", "add", "self", kubernetesWorker, "--config", configuration, "--timeout", "3m"); err != nil {
		return sample, err
	}
	sample.worker = time.Since(begun)
	if _, err := k.reeve(ctx, "kubernetes", "kubeconfig", "--file", k.kubeconfig()); err != nil {
		return sample, err
	}
	if _, err := k.reeve(ctx, "kubernetes", "image", "load", filepath.Join(parts, "hello.tar")); err != nil {
		return sample, err
	}
	if _, err := k.kubectl(ctx, "create", "deployment", "hello", "--image="+helloImage); err != nil {
		return sample, err
	}
	if _, err := k.kubectl(ctx, "rollout", "status", "deployment/hello", "--timeout=3m"); err != nil {
		return sample, err
	}
	sample.running = time.Since(begun)
	if _, err := k.kubectl(ctx, "-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=3m"); err != nil {
		return sample, err
	}
	if err := wait(ctx, settle); err != nil {
		return sample, err
	}
	return sample, k.proportional(ctx, &sample)
}

// proportional is the proportional set size of all processes of the node, in 10^6 bytes: the core, what it has started, what has the node's name in its arguments (the shims of
// containers, which are nobody's children), and the children of all of these.
func (k *kubernetes) proportional(ctx context.Context, sample *freshSample) error {
	said, err := k.reeve(ctx, "dev", "status", "-o", "json")
	if err != nil {
		return err
	}
	var fleet struct {
		Nodes []struct {
			PID    int `json:"pid"`
			Status struct {
				Node struct {
					ID string `json:"id"`
				} `json:"node"`
			} `json:"status"`
		} `json:"nodes"`
	}
	if err := json.Unmarshal([]byte(said), &fleet); err != nil {
		return err
	}
	if len(fleet.Nodes) != 1 || fleet.Nodes[0].PID == 0 || fleet.Nodes[0].Status.Node.ID == "" {
		return fmt.Errorf("there is not one node: %s", said)
	}
	all, err := procfs.All()
	if err != nil {
		return err
	}
	ours := map[int]bool{fleet.Nodes[0].PID: true}
	// A child may have a lower ID than its parent.
	for grown := true; grown; {
		grown = false
		for _, p := range all {
			named := func(argument string) bool { return strings.Contains(argument, fleet.Nodes[0].Status.Node.ID) }
			if !ours[p.PID] && !p.Ended() && (ours[p.Parent] || slices.ContainsFunc(p.Arguments, named)) {
				ours[p.PID], grown = true, true
			}
		}
	}
	sample.of, sample.count = make(map[string]float64), make(map[string]int)
	for _, p := range all {
		if !ours[p.PID] || len(p.Arguments) == 0 {
			continue
		}
		memory, err := rollup(p.PID)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // it was one that ends soon, such as nft
		}
		if err != nil {
			return err
		}
		name := filepath.Base(p.Arguments[0])
		sample.memory += memory.proportional
		sample.of[name] += memory.proportional
		sample.count[name]++
	}
	return nil
}
