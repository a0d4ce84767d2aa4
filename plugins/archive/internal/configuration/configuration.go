package configuration

import (
	"net"
	"net/url"
	"path"
	"path/filepath"
	"strings"

	"github.com/reeveproject/reeve/sdk/role"
)

// DefaultKeep is how many copies are kept if nothing else is configured.
const DefaultKeep = 30

// Configuration is the role's configuration. Without a directory and a bucket the role uses the directory that it is granted.
type Configuration struct {
	Directory string  `json:"directory,omitempty" doc:"The directory in which each node has a directory of copies; without one, and without a bucket: the directory that the role is granted. The role needs the grant write-path for it." pattern:"^/.*[^/]$"`
	SameDisk  bool    `json:"sameDisk" doc:"Whether the directory may be on the file system of the node's own data. Otherwise another one must be mounted there."`
	Bucket    *Bucket `json:"bucket,omitempty" doc:"The S3-compatible bucket that gets copies, below the prefix and the ID of the node."`
	Keep      int     `json:"keep" doc:"How many copies of each node are kept in each place; 0: all." check:"min=0,max=1000000"`
}

// Bucket is an S3-compatible bucket.
type Bucket struct {
	Endpoint        string `json:"endpoint" doc:"Where the server is, such as https://s3.example.com. Without TLS (http://) it must be an address of this machine alone." check:"required" pattern:"^https?://[^/?#@ ]+$"`
	Name            string `json:"name" doc:"The name of the bucket." check:"required" pattern:"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$"`
	Prefix          string `json:"prefix,omitempty" doc:"What the names of all objects begin with, such as prod/." pattern:"^[A-Za-z0-9_.=-][A-Za-z0-9_.=/-]{0,511}$"`
	Region          string `json:"region,omitempty" doc:"The region of the bucket; without it the server is asked." pattern:"^[A-Za-z0-9-]{1,64}$"`
	PathStyle       bool   `json:"pathStyle" doc:"Whether the bucket is always named in the path. Otherwise it is part of the host's name at the providers that want it so, and in the path at all others."`
	CredentialsFile string `json:"credentialsFile" doc:"The file of the access key, as the AWS command line has it: a section [default] with aws_access_key_id and aws_secret_access_key. The role needs the grant read-path for it." check:"required" pattern:"^/.*[^/]$"`
	CAFile          string `json:"caFile,omitempty" doc:"A file of certificates (PEM) of the CA that has signed the server's; without it: those that the machine trusts." pattern:"^/.*[^/]$"`
}

// Schema is the role's configuration as the SDK has it.
var Schema = role.Configure(func() *Configuration { return &Configuration{Keep: DefaultKeep} }, check)

// check adds what the tags of the fields cannot say. No problem quotes a value: an endpoint may have been given with a password in it.
func check(c *Configuration, problems *role.ConfigurationError) {
	file := func(at, value string) {
		if value != "" && filepath.Clean(value) != value {
			problems.Add(at, "want an absolute path without . or ..")
		}
	}
	file("/directory", c.Directory)
	if c.Bucket == nil {
		return
	}
	file("/bucket/credentialsFile", c.Bucket.CredentialsFile)
	file("/bucket/caFile", c.Bucket.CAFile)
	if prefix := c.Bucket.Prefix; prefix != "" && path.Clean(prefix) != strings.TrimSuffix(prefix, "/") {
		problems.Add("/bucket/prefix", "want a prefix without . or .. and without // in it, such as prod/")
	}
	endpoint, err := url.Parse(c.Bucket.Endpoint)
	switch {
	case err != nil || endpoint.Hostname() == "":
		problems.Add("/bucket/endpoint", "want https://HOST or https://HOST:PORT")
	case endpoint.Scheme == "http" && !loopback(endpoint.Hostname()):
		problems.Add("/bucket/endpoint", "want https://: only a server on this machine (127.0.0.1, ::1, localhost) may be without TLS")
	case endpoint.Scheme == "http" && c.Bucket.CAFile != "":
		problems.Add("/bucket/caFile", "a server without TLS (http://) has no certificate: leave this out, or use https://")
	}
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// directory returns the directory for copies, by the configuration or else by what is granted; empty: there is none.
func (c *Configuration) directory(grants []role.Grant) string {
	if c.Directory != "" || c.Bucket != nil {
		return c.Directory
	}
	for _, grant := range grants {
		if grant.Name == writePath {
			return grant.Parameters[pathParameter]
		}
	}
	return ""
}
