package role_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/reeveproject/reeve/sdk/role"
	"github.com/reeveproject/reeve/sdk/roletest"
)

// await waits until something is so.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx := within(t, soon)
	for !ok() {
		select {
		case <-ctx.Done():
			t.Fatalf("it does not come to %s", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// SVIDs are renewed while connections are in use: nothing breaks, and new connections come about all the time.
func TestRenewalUnderTraffic(t *testing.T) {
	cluster := roletest.NewCluster(t, 2)
	server, client := cluster.Host(0).Instance(t, "lighthouse"), cluster.Host(1).Instance(t, "lighthouse")
	echo(t, listen(t, server))
	conn := dial(t, client, "lighthouse", cluster.Host(0).NodeID(), "")
	for range 5 {
		serverRenewed, clientRenewed := role.RenewNow(server), role.RenewNow(client)
		for renewed := false; !renewed; {
			renewed = serverRenewed() && clientRenewed() // once more after that
			mustEcho(t, conn)
			fresh := dial(t, client, "lighthouse", cluster.Host(0).NodeID(), "")
			mustEcho(t, fresh)
			_ = fresh.Close()
		}
	}
}

// Without a curator the SVID is used until it expires. Then connections end, there are no new ones, and the error says why; with a curator there are again.
func TestExpiry(t *testing.T) {
	t.Parallel()
	cluster := roletest.NewCluster(t, 2)
	cluster.Authority().SetLifetime(12 * time.Second) // renewed after 6 to 8, which leaves time for what is done until they end
	server, client := cluster.Host(0).Instance(t, "lighthouse"), cluster.Host(1).Instance(t, "lighthouse")
	echo(t, listen(t, server))
	connect := func() (conn net.Conn, err error) {
		if conn, err = client.Dial(within(t, soon), "lighthouse", cluster.Host(0).NodeID(), ""); err == nil {
			t.Cleanup(func() { _ = conn.Close() })
		}
		return conn, err
	}
	var conn net.Conn
	// On a busy machine an SVID may expire between the moment when it is looked at and the one when it is shown.
	await(t, "a connection", func() (ok bool) {
		var err error
		conn, err = connect()
		return err == nil && echoes(conn) == nil
	})
	cluster.Host(0).Split()
	cluster.Host(1).Split()
	mustEnd(t, conn)
	if expires := role.Expires(conn); time.Now().Before(expires) {
		t.Errorf("the connection ended %s before the SVIDs expired", time.Until(expires))
	}
	await(t, "attempts to renew", func() bool { return cluster.Host(1).Calls("IssueSVID") > 1 && cluster.Host(0).Calls("IssueSVID") > 1 })
	// The server's SVID may have expired before the client's.
	var err error
	await(t, "the end of the client's SVID", func() bool {
		var conn net.Conn
		if conn, err = client.Dial(within(t, 50*time.Millisecond), "lighthouse", cluster.Host(0).NodeID(), ""); err == nil {
			_ = conn.Close()
		}
		// The first attempt to renew it may fail after it has expired.
		return errors.Is(err, role.ErrNoIdentity) && strings.Contains(err.Error(), "no curator")
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got: %v", err)
	}
	cluster.Authority().SetLifetime(time.Hour)
	cluster.Host(0).Rejoin()
	cluster.Host(1).Rejoin()
	// The client waits for the server's SVID no longer than a handshake may take.
	await(t, "a connection again", func() bool {
		conn, err := connect()
		return err == nil && echoes(conn) == nil
	})
}

// A role that starts while no curator answers can listen; what it serves is shown when it can be served.
func TestStartsInSplit(t *testing.T) {
	cluster := roletest.NewCluster(t, 2)
	cluster.Host(0).Split()
	server, client := cluster.Host(0).Instance(t, "lighthouse"), cluster.Host(1).Instance(t, "lighthouse")
	listener := listen(t, server)
	echo(t, listener)
	await(t, "an attempt to get an SVID", func() bool { return cluster.Host(0).Calls("IssueSVID") > 1 })
	mustNotDial(t, client, "lighthouse", cluster.Host(0).NodeID(), "wire", role.ErrNoInstance)
	if _, err := server.Dial(within(t, 50*time.Millisecond), "lighthouse", cluster.Host(1).NodeID(), ""); !errors.Is(err, role.ErrNoInstance) {
		t.Errorf("what the directory does not have takes no SVID to tell: %v", err)
	}
	cluster.Host(0).Rejoin()
	mustEcho(t, dial(t, client, "lighthouse", cluster.Host(0).NodeID(), "wire"))
}

// The CA is replaced in three steps. There is a connection at every time, also between one that has an SVID of the old CA and one that has one of the new.
func TestRotation(t *testing.T) {
	cluster := roletest.NewCluster(t, 3)
	old := cluster.Host(0).Instance(t, "lighthouse")
	echo(t, listen(t, old))
	node := cluster.Host(0).NodeID()
	early := cluster.Host(1).Instance(t, "lighthouse")
	conn := dial(t, early, "lighthouse", node, "")
	if err := cluster.Authority().Prepare(); err != nil {
		t.Fatal(err)
	}
	mustEcho(t, conn)
	mustEcho(t, dial(t, early, "lighthouse", node, ""))
	await(t, "the news of the new CA", func() bool { return cluster.Host(0).Calls("WatchTrust") > 0 })
	cluster.Authority().Activate()
	late := cluster.Host(2).Instance(t, "lighthouse")
	ctx := within(t, soon)
	for {
		// An instance that has not heard of the new CA yet refuses for a moment: between two steps of a real rotation are hours.
		fresh, err := late.Dial(ctx, "lighthouse", node, "")
		if err == nil {
			mustEcho(t, fresh)
			_ = fresh.Close()
			break
		}
		if !errors.Is(err, role.ErrNotAuthorised) && !errors.Is(err, role.ErrNoInstance) {
			t.Fatal(err)
		}
	}
	mustEcho(t, dial(t, early, "lighthouse", node, ""))
	mustEcho(t, conn)
	before, asked := cluster.Authority().Issued(), []int{cluster.Host(0).Calls("IssueSVID"), cluster.Host(1).Calls("IssueSVID")}
	cluster.Authority().Retire()
	// Whoever has an SVID of the old CA is given another one at once, and what was made by the old ones ends. The late one may ask once more, within some seconds.
	await(t, "new SVIDs", func() bool {
		return cluster.Host(0).Calls("IssueSVID") > asked[0] && cluster.Host(1).Calls("IssueSVID") > asked[1] && cluster.Authority().Issued() >= before+2
	})
	mustEnd(t, conn)
	for _, host := range []*role.Host{early, late} {
		await(t, "connections by the new CA", func() bool {
			fresh, err := host.Dial(ctx, "lighthouse", node, "")
			if err != nil {
				return false
			}
			defer func() { _ = fresh.Close() }()
			return echoes(fresh) == nil
		})
	}
}

// A core that dies and comes back is not noticed: connections stay, new ones come about, and its node is not taken for one that has left.
func TestCoreIsAway(t *testing.T) {
	cluster := roletest.NewCluster(t, 2)
	server, client := cluster.Host(0).Instance(t, "lighthouse"), cluster.Host(1).Instance(t, "lighthouse")
	echo(t, listen(t, server))
	conn := dial(t, client, "lighthouse", cluster.Host(0).NodeID(), "")
	cluster.Host(0).Stop()
	cluster.Host(1).Stop()
	mustEcho(t, conn)
	mustEcho(t, dial(t, client, "lighthouse", cluster.Host(0).NodeID(), ""))
	for n := range 2 {
		if err := cluster.Host(n).Serve(); err != nil {
			t.Fatal(err)
		}
	}
	mustEcho(t, conn)
	cluster.Remove(cluster.Host(0))
	mustEnd(t, conn)
}
