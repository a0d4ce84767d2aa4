package measures

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/e2e/bench"
	"github.com/reeveproject/reeve/e2e/bench/crowd"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

const (
	// crowdFiles is how many files a role may have open in this measure: a connection each, and more nodes than a role has unless its node's parameters say so.
	crowdFiles = 16384
	// crowdPatience is how long the nodes of one size may take to come.
	crowdPatience = 30 * time.Minute
	// boundNodes is up to how many nodes an update is to be seen in a time.
	boundNodes = 1000
	// crowdUpdate is how long an update may take to be seen by all before the measure gives up.
	crowdUpdate = time.Minute
)

// many measures one curator with many simulated nodes that watch and send heartbeats: how soon all of them have seen an update, and what each costs the curator and the store.
func (b *Bed) many(ctx context.Context, say func(string, ...any)) (results []bench.Result, err error) {
	sizes := b.Nodes
	if len(sizes) == 0 {
		sizes = []int{boundNodes}
	}
	_, labels := b.count(0, 100)
	_, roles := b.count(0, 50)
	if b.Quick {
		// More than there are updates: a node that has the role already is not given it anew.
		sizes = []int{24}
	}
	err = b.withCrowd(ctx, sizes[len(sizes)-1], []string{"hostsfile"}, func(comers *comers) error {
		before, err := comers.look()
		if err != nil {
			return err
		}
		for _, size := range sizes {
			found, err := comers.measure(ctx, say, size, labels, roles, before)
			results = append(results, found...)
			if err != nil {
				return fmt.Errorf("%d nodes: %w", size, err)
			}
		}
		return nil
	})
	if err != nil || sizes[0] > boundNodes {
		return results, err
	}
	found, err := b.publishing(ctx, say, sizes[0])
	return append(results, found...), err
}

// withCrowd has a node with a curator, and a process for most simulated nodes that ask for roles.
func (b *Bed) withCrowd(ctx context.Context, most int, roles []string, do func(*comers) error) (err error) {
	n, err := b.newNode(storage.Plain)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	if err := n.expectCrowd(); err != nil {
		return err
	}
	if err := n.start(ctx); err != nil {
		return err
	}
	if err := n.up(ctx); err != nil {
		return err
	}
	if err := n.addPlugin(ctx, b.Programs.bench("hello")); err != nil {
		return err
	}
	comers, err := b.startCrowd(ctx, n, most, roles)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, comers.stop()) }()
	return do(comers)
}

// expectCrowd has the node's roles have as many files open as there are nodes, and its curator always listen at the same address, where those come back that knew it before.
func (n *node) expectCrowd() error {
	network, err := n.bed.network()
	if err != nil {
		return err
	}
	document, err := os.ReadFile(n.parametersFile())
	if err != nil {
		return err
	}
	parameters := new(nodev1.Parameters)
	if err := protojson.Unmarshal(document, parameters); err != nil {
		return err
	}
	parameters.Sandbox = &nodev1.SandboxDefaults{OpenFiles: new(int64(crowdFiles))}
	for _, role := range parameters.GetBootstrap().GetRoles() {
		if role.GetRole() == "curator" {
			role.Configuration = fmt.Sprintf(`{"listen":"%s1:%d"}`, network, curatorPort)
		}
	}
	if document, err = protojson.Marshal(parameters); err != nil {
		return err
	}
	return os.WriteFile(n.parametersFile(), document, 0o644)
}

// comers are the simulated nodes, and the node whose curator serves them.
type comers struct {
	*process
	bed    *Bed
	node   *node
	client crowd.Client
	ids    []string
	// used is how many of them an update was made of: each is made of another.
	used int
}

// startCrowd starts the process of the simulated nodes, with tickets for as many as there will be.
func (b *Bed) startCrowd(ctx context.Context, n *node, most int, roles []string) (*comers, error) {
	access := n.last.GetCluster()
	settings := crowd.Settings{ClusterID: access.GetClusterId(), Curators: access.GetCurators(), Roles: roles}
	for _, der := range access.GetCaCertificates() {
		certificate, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, err
		}
		pin := sha256.Sum256(certificate.RawSubjectPublicKeyInfo)
		settings.Pins = append(settings.Pins, pin[:])
	}
	management, done, err := n.management()
	if err != nil {
		return nil, err
	}
	defer done()
	for left := most; left > 0; left -= crowd.UsesPerTicket {
		made, err := management.CreateTicket(ctx, &clusterv1.CreateTicketRequest{Uses: crowd.UsesPerTicket, Roles: settings.Roles, AutoApprove: true})
		if err != nil {
			return nil, err
		}
		settings.Tickets = append(settings.Tickets, crowd.Ticket{ID: made.GetText().GetTicketId(), Secret: made.GetText().GetSecret()})
	}
	document, err := json.Marshal(settings)
	if err != nil {
		return nil, err
	}
	cluster := filepath.Join(n.at.work, "crowd.json")
	if err := os.WriteFile(cluster, document, 0o600); err != nil {
		return nil, err
	}
	lines := make(chan string, 1)
	p, err := startProcess(filepath.Join(n.at.work, "crowd.log"), lines, b.Programs.bench("crowd"), "-cluster", cluster)
	if err != nil {
		return nil, err
	}
	url, err := p.line(ctx, lines)
	if err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return &comers{process: p, bed: b, node: n, client: crowd.Client{URL: url}}, nil
}

// looked is what the processes had used when they were looked at.
type looked struct {
	at                              time.Time
	curatorMemory, storeMemory      float64
	curatorTime, storeTime, ownTime time.Duration
}

func (c *comers) look() (looked, error) {
	l := looked{at: time.Now()}
	for _, role := range []struct {
		name   string
		memory *float64
		time   *time.Duration
	}{{"curator", &l.curatorMemory, &l.curatorTime}, {"consensus", &l.storeMemory, &l.storeTime}} {
		pid := int(instanceOf(c.node.last, role.name).GetPid())
		used, err := rollup(pid)
		if err != nil {
			return l, err
		}
		*role.memory = used.private
		if *role.time, err = cpu(pid); err != nil {
			return l, err
		}
	}
	var err error
	l.ownTime, err = cpu(c.pid())
	return l, err
}

// measure measures with so many nodes. before is how the processes were without any.
func (c *comers) measure(ctx context.Context, say func(string, ...any), size, labels, roles int, before looked) (results []bench.Result, err error) {
	if err := c.grow(ctx, say, size); err != nil {
		return nil, err
	}
	first, err := c.look()
	if err != nil {
		return nil, err
	}
	if err := wait(ctx, c.bed.lasting(30*time.Second)); err != nil {
		return nil, err
	}
	last, err := c.look()
	if err != nil {
		return nil, err
	}
	seconds := last.at.Sub(first.at).Seconds()
	counts, err := c.counted(ctx)
	if err != nil {
		return nil, err
	}
	say("without a change, %.0f s: %s", seconds, beats(counts))
	reach := func(limit float64) bench.Reach {
		if size <= boundNodes {
			return bench.AtMost(limit)
		}
		return bench.Any()
	}
	quiet := []string{fmt.Sprintf("in %.0f s %s; the simulated nodes took %.0f %% of a core",
		seconds, beats(counts), 100*(last.ownTime-first.ownTime).Seconds()/seconds)}
	memory := append([]string{"private memory beyond that before the first node came, through the number of nodes; kB are 10^3 bytes"}, quiet...)
	for _, of := range []struct {
		name   string
		memory float64
		time   time.Duration
		limit  bench.Reach
	}{
		{"curator", max(first.curatorMemory, last.curatorMemory) - before.curatorMemory, last.curatorTime - first.curatorTime, bench.AtMost(200)},
		{"consensus", max(first.storeMemory, last.storeMemory) - before.storeMemory, last.storeTime - first.storeTime, bench.Any()},
	} {
		results = append(results,
			bench.OfSamples(bench.Result{Name: fmt.Sprintf("%d nodes: %s, memory per node", size, of.name), What: "private memory of " + of.name + " per node", Unit: "kB", Notes: memory},
				bench.Largest, of.limit, []float64{1e3 * of.memory / float64(size)}),
			bench.OfSamples(bench.Result{
				Name: fmt.Sprintf("%d nodes: %s, processor per node", size, of.name), What: "processor time of " + of.name + " per node, of one core, while nothing changes", Unit: "%", Notes: quiet,
			}, bench.Largest, bench.Any(), []float64{100 * of.time.Seconds() / seconds / float64(size)}))
	}
	results = append(results, bench.OfSamples(bench.Result{
		Name: fmt.Sprintf("%d nodes: curator, heartbeats only", size), What: "processor time of the curator, of one core, while nothing changes; at most 40 % for 5,000 nodes", Unit: "%", Notes: quiet,
	}, bench.Largest, bench.AtMost(40), []float64{100 * (last.curatorTime - first.curatorTime).Seconds() / seconds}))
	for _, update := range []struct {
		name, what string
		count      int
		make       func(context.Context, clusterv1.ManagementServiceClient, string) (crowd.Target, func() error)
	}{
		{"label", "from the call that sets a label of a node until the last of all nodes has it in its directory", labels, setLabel},
		{"role", "from the call that gives a node a role until the last of all nodes has it in its directory, reported Ready by that node", roles, giveRole},
	} {
		say("%d nodes: %s, %d times", size, update.name, update.count)
		samples, err := c.updates(ctx, update.count, update.make)
		if err != nil {
			return results, fmt.Errorf("%s: %w", update.name, err)
		}
		counts, err := c.counted(ctx)
		if err != nil {
			return results, err
		}
		result := bench.Result{What: update.what, Unit: "ms", Notes: []string{
			fmt.Sprintf("one sample is one update, until every one of the %d simulated nodes has it; they share the machine with the curator", size),
			"meanwhile " + beats(counts),
		}}
		result.Name = fmt.Sprintf("%d nodes: %s seen by all, p50", size, update.name)
		results = append(results, bench.OfSamples(result, bench.P50, bench.Any(), samples))
		result.Name = fmt.Sprintf("%d nodes: %s seen by all, p99", size, update.name)
		results = append(results, bench.OfSamples(result, bench.P99, reach(250), samples))
	}
	return results, nil
}

// grow has so many nodes come that there are size, and waits until they are at rest. Of coming nothing is counted.
func (c *comers) grow(ctx context.Context, say func(string, ...any), size int) (err error) {
	coming, cancel := context.WithTimeout(ctx, crowdPatience)
	defer cancel()
	begun := time.Now()
	if c.ids, err = c.client.Grow(coming, size); err != nil {
		return fmt.Errorf("%w\n%s", err, c.lastLines())
	}
	say("%d nodes have come after %.0f s", size, time.Since(begun).Seconds())
	if err := wait(ctx, c.bed.lasting(20*time.Second)); err != nil {
		return err
	}
	_, err = c.client.Counted(ctx)
	return err
}

// counted fails if nodes were not there any more, whose figures would mean nothing: if a watch broke, or so many heartbeats failed that nodes may have been taken for dead,
// of which each sends three before it is.
func (c *comers) counted(ctx context.Context) (crowd.Counts, error) {
	counts, err := c.client.Counted(ctx)
	if err == nil && (counts.BeatsFailed > counts.Beats/10 || counts.Failures > 0) {
		err = fmt.Errorf("%d of %d heartbeats and %d other calls of the simulated nodes failed, the last of each: %v", counts.BeatsFailed, counts.Beats, counts.Failures, counts.Last)
	}
	return counts, err
}

// beats is what came of heartbeats, for people.
func beats(counts crowd.Counts) string {
	return fmt.Sprintf("%d heartbeats, the slowest %.0f ms, %d of them failed", counts.Beats, milliseconds(counts.SlowestBeat), counts.BeatsFailed)
}

// updates measures updates, one after another, each of another node.
func (c *comers) updates(
	ctx context.Context, count int, update func(context.Context, clusterv1.ManagementServiceClient, string) (crowd.Target, func() error),
) (samples []float64, err error) {
	management, done, err := c.node.management()
	if err != nil {
		return nil, err
	}
	defer done()
	const warm = 3
	for i := range warm + count {
		call, cancel := context.WithTimeout(ctx, crowdUpdate)
		took, err := c.one(call, func() (crowd.Target, func() error) { return update(call, management, c.ids[c.used%len(c.ids)]) })
		cancel()
		if err != nil {
			return nil, err
		}
		c.used++
		if i >= warm {
			samples = append(samples, milliseconds(took))
		}
		// The next one does not come while this one's last messages are still on their way to somebody.
		if err := wait(ctx, c.bed.lasting(250*time.Millisecond)); err != nil {
			return nil, err
		}
	}
	return samples, nil
}

func (c *comers) one(ctx context.Context, update func() (crowd.Target, func() error)) (time.Duration, error) {
	target, do := update()
	if err := c.client.Expect(ctx, target); err != nil {
		return 0, err
	}
	begun := crowd.Monotonic()
	if err := do(); err != nil {
		return 0, err
	}
	at, err := c.client.Seen(ctx)
	return at - begun, err
}

// setLabel sets a label to a value that it never had.
func setLabel(ctx context.Context, management clusterv1.ManagementServiceClient, node string) (crowd.Target, func() error) {
	value := fmt.Sprint(time.Now().UnixNano())
	return crowd.Target{Node: node, Label: "bench", Value: value}, func() error {
		_, err := management.SetLabels(ctx, &clusterv1.SetLabelsRequest{NodeId: node, Labels: map[string]string{"bench": value}})
		return err
	}
}

// giveRole gives a node the role hello, which it does not have.
func giveRole(ctx context.Context, management clusterv1.ManagementServiceClient, node string) (crowd.Target, func() error) {
	return crowd.Target{Node: node, Role: "hello"}, func() error {
		_, err := management.AddRole(ctx, &clusterv1.AddRoleRequest{NodeId: node, Role: "hello"})
		return err
	}
}
