package worker

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"github.com/reeveproject/reeve/plugins/kubernetes/internal/machine"
	"github.com/reeveproject/reeve/plugins/kubernetes/internal/pki"
	"github.com/reeveproject/reeve/plugins/kubernetes/internal/podnet"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// lookNetwork is how often the pod network is repaired even if the directory has not changed: another program, such as a firewall that reloads, may have removed parts of it.
const lookNetwork = time.Minute

// network makes the pod network when the node has been given its ranges, and follows the nodes, until ctx is done.
func (w *work) network(ctx context.Context, api *nodeClient) {
	own, ok := w.awaitRanges(ctx, api)
	if !ok {
		return
	}
	w.ranges.Set(own)
	w.host.SetValue(valuePodCIDRs, texts(own))
	watch := w.host.Directory().Watch()
	last := make(map[string][]netip.Prefix)
	for told := ""; ctx.Err() == nil; {
		directory, _ := watch.Latest()
		err := w.makeNetwork(ctx, own, peersOf(directory, w.at.node, last))
		if ctx.Err() != nil {
			return
		}
		problem, wait := "", lookNetwork
		if err != nil {
			problem, wait = err.Error(), retryWork
		}
		w.mu.Lock()
		w.networkProblem = problem
		w.mu.Unlock()
		if problem != told && problem != "" {
			w.host.Logger().Error("the pod network is not as it should be; it is tried again", "error", err)
		}
		told = problem
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-watch.Changed():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// makeNetwork makes the pod network as it should be. What is so already stays.
func (w *work) makeNetwork(ctx context.Context, own []netip.Prefix, peers []podnet.Peer) error {
	network, err := podnet.Up(ctx, podnet.Config{
		NodeID: w.at.node, Address: w.address, Cluster: w.cluster.pods, Pods: own, Directory: w.at.ipam(), ConfDir: w.at.cni(), Log: w.host.Logger().Named("pod network"),
	})
	if err != nil {
		return err
	}
	return network.SetPeers(peers)
}

// awaitRanges returns the ranges of this node's pods: those with which pods run already, or those that Kubernetes gives, for which it waits. It returns false if ctx was done before that.
func (w *work) awaitRanges(ctx context.Context, api *nodeClient) ([]netip.Prefix, bool) {
	if text, err := os.ReadFile(w.at.rangesFile()); err == nil {
		if own := prefixes(string(text)); len(own) > 0 {
			return own, true
		}
	}
	for {
		if node, err := api.node(ctx); err == nil {
			if own := prefixes(strings.Join(node.Spec.PodCIDRs, ",")); len(own) > 0 {
				if err := renameio.WriteFile(w.at.rangesFile(), []byte(texts(own)), 0o600, renameio.WithTempDir(filepath.Dir(w.at.rangesFile()))); err != nil {
					w.host.Logger().Warn("the ranges of this node's pods cannot be kept: after a restart they are asked for again", "error", err)
				}
				return own, true
			}
		}
		if !sleep(ctx, lookStarting) {
			return nil, false
		}
	}
}

// checkRanges ends the work if the node has other ranges in Kubernetes than its pods have: they are given to another node sooner or later.
func (w *work) checkRanges(node *kubeNode) {
	used, _ := w.ranges.Get()
	now := prefixes(strings.Join(node.Spec.PodCIDRs, ","))
	if len(used) > 0 && len(now) > 0 && !slices.Equal(used, now) {
		w.host.Logger().Warn("Kubernetes has given the node other pod ranges: its pods are made anew", "used", texts(used), "now", texts(now))
		w.end(errRanges)
	}
}

// forgetRanges ends all pods, which have addresses of former ranges; kubelet makes them anew when it runs again.
func (w *work) forgetRanges() error {
	groups, err := machine.OpenCgroups(w.at.node)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), cleanTime)
	defer cancel()
	if err := w.endPods(ctx, groups); err != nil {
		return err
	}
	w.ranges.Set(nil)
	err = os.Remove(w.at.rangesFile())
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, os.RemoveAll(filepath.Clean(w.at.ipam())))
}

// peersOf are the other workers and their pods. last is what each has said, and is kept: one whose role is being started says nothing, and its pods run.
func peersOf(directory *hostv1.Directory, self string, last map[string][]netip.Prefix) []podnet.Peer {
	var peers []podnet.Peer
	workers := make(map[string]bool)
	for _, node := range directory.GetNodes() {
		for _, instance := range node.GetRoles() {
			if pods := prefixes(instance.GetValues()[valuePodCIDRs]); instance.GetRole() == pki.WorkerRole && len(pods) > 0 {
				last[node.GetNodeId()], workers[node.GetNodeId()] = pods, true
			}
		}
		if slices.Contains(node.GetAssigned().GetRoles(), pki.WorkerRole) {
			workers[node.GetNodeId()] = true
		}
		if node.GetNodeId() == self || len(node.GetAddresses()) == 0 || !workers[node.GetNodeId()] || len(last[node.GetNodeId()]) == 0 {
			continue
		}
		if address, err := netip.ParseAddr(node.GetAddresses()[0]); err == nil {
			peers = append(peers, podnet.Peer{NodeID: node.GetNodeId(), Address: address, Pods: last[node.GetNodeId()]})
		}
	}
	maps.DeleteFunc(last, func(node string, _ []netip.Prefix) bool { return !workers[node] })
	return peers
}
