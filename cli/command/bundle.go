package command

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/cli/bundle"
	"github.com/reeveproject/reeve/cli/dev"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/redact"
	"github.com/reeveproject/reeve/cli/setup"
	"github.com/reeveproject/reeve/cli/target"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// bundleOptions are the flags of `reeve bundle`.
type bundleOptions struct {
	file    string
	tail    uint32
	timeout time.Duration
}

func (c *commands) bundle() *cobra.Command {
	var options bundleOptions
	cmd := &cobra.Command{
		Use:   "bundle",
		Short: "Collect what somebody needs to help, without secrets",
		Long: `bundle writes an archive (tar.gz) for those who help: versions, what doctor finds, the nodes and the catalog, the audit log, and of every node that can be
reached its status, events, metrics and the last lines of its roles' logs. What cannot be read is named, and the rest is there.

Of configurations only the structure is in it, and of published values the names. Private keys, and what is named or known as a secret, are taken out of
every text. Nothing of owner keys, recovery keys, sessions, and the files with a node's keys is read. A role may write anything to its log all the same: look through the bundle before you hand it on.

The file is readable by its owner only, and is never written over another one.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.makeBundle(cmd.Context(), options) },
	}
	cmd.Flags().StringVar(&options.file, "file", "", "where to write it (default: reeve-bundle-TIME.tar.gz)")
	cmd.Flags().Uint32Var(&options.tail, "tail", 2000, "how many of the last lines of each log")
	cmd.Flags().DurationVar(&options.timeout, "timeout", 5*time.Minute, "how long to collect at most; what is missing then is named")
	return cmd
}

func (c *commands) makeBundle(ctx context.Context, options bundleOptions) error {
	now := c.Now()
	if options.file == "" {
		options.file = "reeve-bundle-" + now.UTC().Format("20060102T150405Z") + ".tar.gz"
	}
	// Collecting can take minutes: not in vain.
	if err := bundle.Free(options.file); err != nil {
		return err
	}
	// One that is interrupted is not written; one that takes too long is, with what there is.
	bounded, cancel := context.WithTimeout(ctx, options.timeout)
	defer cancel()
	collector := &collector{commands: c, options: options}
	collector.collect(bounded)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	document, err := collector.bundle.Write(options.file)
	if err != nil {
		return err
	}
	return c.print(document)
}

// collector fills a bundle.
type collector struct {
	*commands
	options bundleOptions
	bundle  *bundle.Bundle
}

// add collects a document or a text and says on the standard error how it went.
func (c *collector) add(ctx context.Context, name string, collect func(context.Context) ([]byte, error)) {
	if err := c.bundle.Add(ctx, bundle.Entry{Name: name, Collect: collect}); err != nil {
		c.say(output.Clean(fmt.Sprintf("  %s: %s", name, missing(name, err).Reason)))
		return
	}
	c.say("  " + output.Clean(name))
}

// document adds a document of package output.
func (c *collector) document(ctx context.Context, name string, collect func(context.Context) (output.Document, error)) {
	c.add(ctx, name, func(ctx context.Context) ([]byte, error) {
		document, err := collect(ctx)
		if err != nil {
			return nil, err
		}
		var text bytes.Buffer
		err = output.Print(&text, output.JSON, document, c.Now())
		return text.Bytes(), err
	})
}

func (c *collector) collect(ctx context.Context) {
	c.say("Collecting:")
	cluster, openErr := target.Open(ctx, c.commands.options)
	var nodes []*clusterv1.Node
	err := openErr
	if err == nil {
		defer func() { _ = cluster.Close() }()
		nodes, err = cluster.ListNodes(ctx)
	}
	// What is in the configurations is looked for in every text, so they have to be known first.
	c.bundle = bundle.New(c.Now(), redact.New(secretsOf(nodes)...))
	c.document(ctx, "version.json", func(ctx context.Context) (output.Document, error) { return c.versions(ctx), nil })
	c.document(ctx, "doctor.json", func(ctx context.Context) (output.Document, error) { return c.doctorDocument(ctx) })
	c.localLog(ctx)
	c.document(ctx, "cluster/nodes.json", func(context.Context) (output.Document, error) { return bundleNodes(nodes), err })
	if openErr != nil {
		return
	}
	c.document(ctx, "cluster/plugins.json", func(ctx context.Context) (output.Document, error) {
		records, err := listPlugins(ctx, cluster)
		var plugins output.Plugins
		for _, record := range records {
			plugins.Plugins = append(plugins.Plugins, output.NewPlugin(record))
		}
		return plugins, err
	})
	c.document(ctx, "cluster/audit.json", func(ctx context.Context) (output.Document, error) {
		return readAudit(ctx, cluster, auditPage, time.Time{})
	})
	for _, node := range c.reachable(ctx, cluster, nodes) {
		c.node(ctx, cluster, node)
	}
}

// secretsOf are the values of all configurations that could be secrets.
func secretsOf(nodes []*clusterv1.Node) []string {
	var secrets []string
	for _, node := range nodes {
		for _, role := range node.GetRecord().GetRoles() {
			secrets = append(secrets, redact.Secrets(role.GetConfiguration())...)
		}
	}
	return secrets
}

// reachable are the nodes to ask: those of the cluster, or the local one alone where the cluster is away.
func (c *collector) reachable(ctx context.Context, cluster *target.Target, nodes []*clusterv1.Node) []target.Node {
	local, err := cluster.FindNode(ctx, "")
	var found []target.Node
	if err == nil && local.Local {
		found = append(found, local)
	}
	for _, node := range nodes {
		if id := node.GetRecord().GetId(); id != local.ID || !local.Local {
			found = append(found, target.Node{ID: id})
		}
	}
	return found
}

func bundleNodes(nodes []*clusterv1.Node) output.Nodes {
	var document output.Nodes
	for _, node := range nodes {
		node = withoutConfigurations(node)
		withoutValues(node.GetStatus().GetInstances())
		document.Nodes = append(document.Nodes, output.NewNode(node))
	}
	return document
}

// withoutValues takes out of roles the values that they publish. The cluster shows them to every node; who gets the bundle is another matter.
func withoutValues(roles []*clusterv1.InstanceStatus) {
	for _, role := range roles {
		for name, value := range role.GetValues() {
			role.Values[name] = redact.Value(value)
		}
	}
}

// node adds what a node says.
func (c *collector) node(ctx context.Context, cluster *target.Target, node target.Node) {
	directory := path.Join("nodes", node.ID)
	api, err := cluster.NodeAPI(ctx, node)
	var status *nodev1.Status
	if err == nil {
		status, err = askStatus(ctx, api, node)
	}
	c.document(ctx, path.Join(directory, "status.json"), func(context.Context) (output.Document, error) {
		shown := proto.CloneOf(status)
		withoutValues(shown.GetNode().GetInstances())
		return output.NewStatus(shown), err
	})
	if err != nil {
		// A node that does not answer is not asked again.
		return
	}
	c.document(ctx, path.Join(directory, "events.json"), func(ctx context.Context) (output.Document, error) {
		events, err := c.readEvents(ctx, api, node, eventOptions{})
		return output.Events{NodeID: node.ID, Events: events}, err
	})
	c.add(ctx, path.Join(directory, "metrics.txt"), func(ctx context.Context) ([]byte, error) {
		text, err := readMetrics(ctx, api, node)
		return []byte(text), err
	})
	for _, instance := range status.GetNode().GetInstances() {
		role := instance.GetRole()
		c.add(ctx, path.Join(directory, "logs", role+".log"), func(ctx context.Context) ([]byte, error) {
			return c.log(ctx, api, node, role)
		})
	}
}

// log returns the last lines of a role's log. The end is kept of what is longer than an entry may be.
func (c *collector) log(ctx context.Context, api nodev1.NodeServiceClient, node target.Node, role string) ([]byte, error) {
	var text []byte
	err := receiveLog(ctx, api, node, &nodev1.ReadLogRequest{Role: role, Tail: c.options.tail}, func(data []byte) error {
		text = append(text, data...)
		if len(text) > 4*bundle.Limit {
			text = append(text[:0], text[len(text)-bundle.Limit-1:]...)
		}
		return nil
	})
	return text, err
}

// localLog adds the log of the reeved that runs in the dev directory.
func (c *collector) localLog(ctx context.Context) {
	file, ok := c.localLogFile()
	if !ok {
		return
	}
	c.add(ctx, "reeved.log", func(context.Context) ([]byte, error) { return readEnd(file, bundle.Limit+1) })
}

// localLogFile is the file to which the reeved of the dev directory, or of this machine, writes its log.
func (c *commands) localLogFile() (string, bool) {
	if c.options.Address != "" || c.options.Socket != "" {
		return "", false
	}
	dir := c.options.Dir
	if dir == "" && isDir(target.DefaultDirectory) {
		dir = target.DefaultDirectory
	}
	if dir == "" {
		parameters, err := setup.ReadParameters(setup.DefaultFile)
		return parameters.GetLog().GetFile(), err == nil && parameters.GetLog().GetFile() != ""
	}
	if directory, err := dev.Find(dir); err == nil {
		return directory.LogFile(), true
	}
	resolved, err := filepath.EvalSymlinks(dir)
	return filepath.Join(resolved, "reeved.log"), err == nil
}

// neverBundled are the names of files with keys, encrypted or not, whatever parameters say of them.
var neverBundled = []string{"configuration.json", "configuration.json.unreadable", "volume-key.json", "cuk.json", "recovery.age", dev.RecoveryKey, "owner.key"}

// readEnd returns at most the last size bytes of a file. It follows no link: the directory may be another user's, who is not to choose what is read.
func readEnd(name string, size int64) ([]byte, error) {
	if slices.Contains(neverBundled, filepath.Base(name)) {
		return nil, fmt.Errorf("%s holds keys, and is never in a bundle", name)
	}
	file, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a file", name)
	}
	return io.ReadAll(io.NewSectionReader(file, max(0, info.Size()-size), size))
}
