package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/reeveproject/reeve/plugins/kubernetes/internal/pki"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// NodeLabel is the label of Kubernetes' nodes by which a worker says on which node of the cluster it is. Its value is the node's ID, as is the name of the node in Kubernetes.
const NodeLabel = "reeve.dev/node"

const (
	// sweepEvery is how often nodes of Kubernetes are looked for that have no worker any more.
	sweepEvery = 5 * time.Second
	// sweepAfter is how long one has to have been without a worker: what is told of a node comes to other nodes a little later.
	sweepAfter = 10 * time.Second
)

// sweep deletes nodes of Kubernetes that have no worker any more, until ctx is done. Every controller does so: what one has deleted is not there for the others.
func (p *plane) sweep(ctx context.Context, api *client) {
	since, told := make(map[string]time.Time), ""
	for sleep(ctx, sweepEvery) {
		directory, ok := pki.Directory(p.host)
		if !ok {
			clear(since)
			continue
		}
		nodes, err := api.nodes(ctx, p.Port)
		if err != nil {
			continue // the state of the API server is told elsewhere
		}
		problem := ""
		for _, node := range departed(directory, nodes, since, time.Now()) {
			deleted, err := api.deleteSilent(ctx, p.Port, node)
			switch {
			case err != nil:
				problem = fmt.Sprintf("%s: %s", node.Name, err)
			case deleted:
				p.host.Logger().Info("a node of Kubernetes was deleted: it has no worker any more", "node", node.Name)
			}
		}
		if problem != "" && problem != told && ctx.Err() == nil {
			p.host.Logger().Warn("a node of Kubernetes that has no worker any more could not be deleted; it is tried again", "problem", problem)
		}
		told = problem
	}
}

// node is what is to be known of a node of Kubernetes to delete it.
type node struct {
	Name    string            `json:"name"`
	UID     string            `json:"uid"`
	Version string            `json:"resourceVersion"`
	Labels  map[string]string `json:"labels"`
}

// departed are the nodes of Kubernetes that a worker has registered on a node which has been without the role, or has not been there, for long enough. since is what was seen of them
// before, by their UIDs.
func departed(directory *hostv1.Directory, nodes []node, since map[string]time.Time, now time.Time) []node {
	var found []node
	seen := make(map[string]bool)
	for _, each := range nodes {
		if each.Labels[NodeLabel] != each.Name || !withoutWorker(directory, each.Name) {
			continue
		}
		seen[each.UID] = true
		if _, ok := since[each.UID]; !ok {
			since[each.UID] = now
		}
		if now.Sub(since[each.UID]) >= sweepAfter {
			found = append(found, each)
		}
	}
	for uid := range since {
		if !seen[uid] {
			delete(since, uid)
		}
	}
	return found
}

// withoutWorker reports whether the directory says that there is no worker on a node. Of a node whose roles the directory does not tell, it does not.
func withoutWorker(directory *hostv1.Directory, nodeID string) bool {
	for _, node := range directory.GetNodes() {
		if node.GetNodeId() == nodeID {
			return node.GetAssigned() != nil && !slices.Contains(node.GetAssigned().GetRoles(), pki.WorkerRole)
		}
	}
	return true
}

const nodesPath = "/api/v1/nodes"

// nodes are the nodes that workers have registered, without what they report.
func (c *client) nodes(ctx context.Context, port int) ([]node, error) {
	var all []node
	for next := ""; ; {
		query := url.Values{"labelSelector": {NodeLabel}, "limit": {"50"}}
		if next != "" {
			query.Set("continue", next)
		}
		var page struct {
			Metadata struct {
				Continue string `json:"continue"`
			} `json:"metadata"`
			Items []struct {
				Metadata node `json:"metadata"`
			} `json:"items"`
		}
		// Their metadata only: what many nodes report of themselves is much.
		status, answer, err := c.send(ctx, http.MethodGet, c.at.url(port)+nodesPath+"?"+query.Encode(), nil, http.Header{"Accept": {"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}})
		if err == nil && status != http.StatusOK {
			err = unexpected(status, answer)
		}
		if err == nil {
			err = json.Unmarshal([]byte(answer), &page)
		}
		if err != nil {
			return nil, err
		}
		for _, item := range page.Items {
			all = append(all, item.Metadata)
		}
		if next = page.Metadata.Continue; next == "" {
			return all, nil
		}
	}
}

// deleteSilent deletes a node if Kubernetes has not heard of its kubelet for long, and if it is the same one then. One whose kubelet is alive may have a worker that is about to stop, and
// drains; or one that this node has not been told of.
func (c *client) deleteSilent(ctx context.Context, port int, of node) (deleted bool, err error) {
	var now struct {
		Metadata node       `json:"metadata"`
		Status   nodeStatus `json:"status"`
	}
	path := nodesPath + "/" + url.PathEscape(of.Name)
	found, err := c.get(ctx, port, path, &now)
	if err != nil || !found || now.Metadata.UID != of.UID || !now.Status.silent() {
		return false, err
	}
	text, err := json.Marshal(object{"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": object{"uid": now.Metadata.UID, "resourceVersion": now.Metadata.Version}})
	if err != nil {
		return false, err
	}
	status, answer, err := c.do(ctx, http.MethodDelete, c.at.url(port)+path, text)
	switch {
	case err != nil:
		return false, err
	case status == http.StatusOK || status == http.StatusAccepted:
		return true, nil
	case status == http.StatusNotFound || status == http.StatusConflict:
		return false, nil // another controller has deleted it, or its kubelet lives
	}
	return false, unexpected(status, answer)
}

type nodeStatus struct {
	Conditions []struct {
		Type   string `json:"type"`
		Status string `json:"status"`
	} `json:"conditions"`
}

// silent reports whether kube-controller-manager has not heard of the kubelet for the time in which it should have.
func (s nodeStatus) silent() bool {
	for _, condition := range s.Conditions {
		if condition.Type == "Ready" {
			return condition.Status == "Unknown"
		}
	}
	return false
}
