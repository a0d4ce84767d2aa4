package role_test

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"testing"
	"time"

	"github.com/reeveproject/reeve/proto/identity"
	"github.com/reeveproject/reeve/sdk/role"
	"github.com/reeveproject/reeve/sdk/roletest"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

const ownerKeyID = "00112233445566778899aabbccddeeff"

// operatorDial connects to a listener with the certificate of a session. With TLS 1.3 a refusal comes with the first read.
func operatorDial(t *testing.T, authority *roletest.Authority, address string, session identity.Session) net.Conn {
	t.Helper()
	certificate, err := authority.Session(session)
	if err != nil {
		t.Fatal(err)
	}
	roots := authority.Roots()
	conn, err := (&tls.Dialer{Config: &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate},
		InsecureSkipVerify: true, // an SVID has no DNS name: the chain is verified here
		VerifyConnection: func(state tls.ConnectionState) error {
			_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
			return err
		},
	}}).DialContext(within(t, soon), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestOperators(t *testing.T) {
	cluster := roletest.NewCluster(t, 2)
	host := cluster.Host(0)
	host.GrantOperators()
	alice := &hostv1.Operator{Name: "alice", Id: "00000001", Role: hostv1.OperatorRole_OPERATOR_ROLE_VIEWER}
	host.Operators.Set(&hostv1.Operators{OwnerKeyId: ownerKeyID, Operators: []*hostv1.Operator{alice}})
	instance := host.Instance(t, "lighthouse")
	accepted := make(chan role.Operator, 16)
	listener := listen(t, instance, role.AllowRoles("ship"), role.AllowOperators())
	echo(t, observed{listener, func(conn net.Conn) {
		if who, ok := role.OperatorOf(conn); ok {
			if _, isInstance := role.PeerOf(conn); isInstance {
				t.Error("an operator is taken for an instance")
			}
			accepted <- who
		}
	}})
	plain := listen(t, host.Instance(t, "strict"), role.AllowRoles("ship"))
	echo(t, plain)
	address, hour := listener.Addr().String(), time.Now().Add(time.Hour).Truncate(time.Second)

	// An instance is let in as before, and is no operator.
	mustEcho(t, dial(t, cluster.Host(1).Instance(t, "ship"), "lighthouse", host.NodeID(), "wire"))

	if _, err := instance.Operators().Wait(within(t, soon), func(*hostv1.Operators) bool { return true }); err != nil {
		t.Fatal(err)
	}
	owner := operatorDial(t, host.Authority(), address, identity.Session{ID: ownerKeyID, Ends: hour})
	mustEcho(t, owner)
	if who := <-accepted; who.Name != "" || who.Role != hostv1.OperatorRole_OPERATOR_ROLE_OWNER {
		t.Errorf("the owner is taken for %+v", who)
	}
	viewer := operatorDial(t, host.Authority(), address, identity.Session{Operator: "alice", ID: "00000001", Ends: hour})
	mustEcho(t, viewer)
	if who := <-accepted; who.Name != "alice" || who.ID != "00000001" || who.Role != hostv1.OperatorRole_OPERATOR_ROLE_VIEWER || who.Expires.IsZero() {
		t.Errorf("the viewer is taken for %+v", who)
	}

	for _, refused := range []struct {
		name    string
		session identity.Session
	}{
		{"another owner key", identity.Session{ID: "ff112233445566778899aabbccddeeff", Ends: hour}},
		{"no such operator", identity.Session{Operator: "bob", ID: "00000001", Ends: hour}},
		{"an operator of before", identity.Session{Operator: "alice", ID: "00000002", Ends: hour}},
		{"a session that is over", identity.Session{Operator: "alice", ID: "00000001", Ends: time.Now().Add(-time.Second)}},
		{"an operator as an owner", identity.Session{ID: "00000001", Ends: hour}},
	} {
		t.Run(refused.name, func(t *testing.T) { mustEnd(t, operatorDial(t, host.Authority(), address, refused.session)) })
	}
	t.Run("another cluster", func(t *testing.T) {
		other := roletest.NewHost(t).Authority()
		certificate, err := other.Session(identity.Session{ID: ownerKeyID, Ends: hour})
		if err != nil {
			t.Fatal(err)
		}
		conn, err := tls.Dial("tcp", address, &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}, InsecureSkipVerify: true})
		if err == nil {
			mustEnd(t, conn)
			_ = conn.Close()
		}
	})
	t.Run("a listener without operators", func(t *testing.T) {
		mustEnd(t, operatorDial(t, host.Authority(), plain.Addr().String(), identity.Session{ID: ownerKeyID, Ends: hour}))
	})

	// Who is made something else is out at once, and so is who is removed; others are not touched.
	host.Operators.Set(&hostv1.Operators{OwnerKeyId: ownerKeyID, Operators: []*hostv1.Operator{
		{Name: "alice", Id: "00000001", Role: hostv1.OperatorRole_OPERATOR_ROLE_OPERATOR},
	}})
	mustEnd(t, viewer)
	again := operatorDial(t, host.Authority(), address, identity.Session{Operator: "alice", ID: "00000001", Ends: hour})
	mustEcho(t, again)
	if who := <-accepted; who.Role != hostv1.OperatorRole_OPERATOR_ROLE_OPERATOR {
		t.Errorf("the operator is taken for %+v", who)
	}
	host.Operators.Set(&hostv1.Operators{OwnerKeyId: ownerKeyID})
	mustEnd(t, again)
	mustEcho(t, owner)
	host.Operators.Set(&hostv1.Operators{OwnerKeyId: "ff112233445566778899aabbccddeeff"})
	mustEnd(t, owner)
}

// observed is a listener of which something sees what it accepts.
type observed struct {
	net.Listener
	see func(net.Conn)
}

func (o observed) Accept() (net.Conn, error) {
	conn, err := o.Listener.Accept()
	if err == nil {
		o.see(conn)
	}
	return conn, err
}
