package target

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"
	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/plugins/archive/internal/configuration"
	"github.com/reeveproject/reeve/proto/limits"
	"github.com/reeveproject/reeve/proto/snapshot"
)

const (
	// partSize is how much is sent in one request. It is held in memory, so that the server can check it (Content-MD5). 10,000 parts have more than a snapshot can have.
	partSize = 16 << 20
	// maxTries is how often a request is sent that may be repeated.
	maxTries = 3
	// callTime bounds what sends no copy, and maxKeys is how many objects are listed.
	callTime = 3 * time.Minute
	maxKeys  = 1_000_000
	// maxFile bounds the files of credentials and certificates.
	maxFile = 1 << 20
)

// Bucket keeps the copies of a node in an S3-compatible bucket.
type Bucket struct {
	config    configuration.Bucket
	prefix    string
	client    *minio.Client
	transport *http.Transport
	// Those of the same names; tests shorten them.
	callTime time.Duration
	maxKeys  int
}

// OpenBucket returns the part of a node in a bucket, with the credentials that the file has now. The caller closes it.
func OpenBucket(config configuration.Bucket, nodeID string) (*Bucket, error) {
	key, err := readCredentials(config.CredentialsFile)
	if err != nil {
		return nil, err
	}
	endpoint, err := url.Parse(config.Endpoint)
	if err != nil {
		return nil, errors.New("the endpoint of the bucket is not a URL")
	}
	secure := endpoint.Scheme == "https"
	transport, err := minio.DefaultTransport(secure)
	if err != nil {
		return nil, fmt.Errorf("prepare connections to %s: %w", config.Endpoint, err)
	}
	// Only what is configured decides where secrets go.
	transport.Proxy = nil
	if config.CAFile != "" {
		trusted, err := readCertificates(config.CAFile)
		if err != nil {
			return nil, err
		}
		transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: trusted}
	}
	lookup := minio.BucketLookupAuto
	if config.PathStyle {
		lookup = minio.BucketLookupPath
	}
	client, err := minio.New(endpoint.Host, &minio.Options{
		Creds:  credentials.NewStatic(key.AccessKeyID, key.SecretAccessKey, key.SessionToken, credentials.SignatureV4),
		Secure: secure, Transport: transport, Region: config.Region, BucketLookup: lookup, MaxRetries: maxTries,
	})
	if err != nil {
		return nil, fmt.Errorf("the endpoint %s cannot be used: %w", config.Endpoint, err)
	}
	return &Bucket{config: config, prefix: config.Prefix + nodeID + "/", client: client, transport: transport, callTime: callTime, maxKeys: maxKeys}, nil
}

// readCredentials reads an access key. What the file holds is in no error.
func readCredentials(path string) (credentials.Value, error) {
	content, err := readFile(path)
	if err != nil {
		return credentials.Value{}, fmt.Errorf("cannot read the credentials %s: %w", path, err)
	}
	key := parseCredentials(string(content))
	if key.AccessKeyID == "" || key.SecretAccessKey == "" {
		return credentials.Value{}, fmt.Errorf("the credentials %s cannot be used: want a section [default] with aws_access_key_id and aws_secret_access_key", path)
	}
	return key, nil
}

// parseCredentials reads the section [default] as the AWS command line does: a value goes to the end of its line. The library's own reader ends it at a # or ;, which a secret may have, and
// runs programs that a file names.
func parseCredentials(content string) (key credentials.Value) {
	within := false
	for line := range strings.Lines(content) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			within = line == "[default]"
		}
		name, value, _ := strings.Cut(line, "=")
		if value = strings.TrimSpace(value); within {
			switch strings.TrimSpace(name) {
			case "aws_access_key_id":
				key.AccessKeyID = value
			case "aws_secret_access_key":
				key.SecretAccessKey = value
			case "aws_session_token":
				key.SessionToken = value
			}
		}
	}
	return key
}

func readCertificates(path string) (*x509.CertPool, error) {
	content, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the certificates %s: %w", path, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(content) {
		return nil, fmt.Errorf("the file %s has no certificates: want some in PEM", path)
	}
	return pool, nil
}

// readFile reads a file. The error says what to do, and does not name the file.
func readFile(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe would be waited for
	switch {
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("%w: the role runs as user %d: run `chown %d %s`", reasonOf(err), os.Getuid(), os.Getuid(), configuration.Quote(path))
	case err != nil:
		return nil, reasonOf(err)
	}
	defer func() { _ = file.Close() }()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() || info.Size() > maxFile {
		return nil, fmt.Errorf("it is not a file of at most %d bytes", maxFile)
	}
	content, err := io.ReadAll(io.LimitReader(file, maxFile))
	return content, reasonOf(err)
}

// reasonOf leaves the path out of an error, since it is said already.
func reasonOf(err error) error {
	if reason := (*fs.PathError)(nil); errors.As(err, &reason) {
		return reason.Err
	}
	return err
}

// Place is where the copies are, for people.
func (b *Bucket) Place() string { return b.config.Endpoint + "/" + b.config.Name + "/" + b.prefix }

// Close ends the connections.
func (b *Bucket) Close() { b.transport.CloseIdleConnections() }

// List returns the sizes of the copies by name.
func (b *Bucket) List(ctx context.Context) (map[snapshot.Name]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, b.callTime)
	defer cancel()
	found, listed := make(map[snapshot.Name]int64), 0
	for object := range b.client.ListObjectsIter(ctx, b.config.Name, minio.ListObjectsOptions{Prefix: b.prefix}) {
		if object.Err != nil {
			return nil, b.explain("list the bucket", object.Err)
		}
		if listed++; listed > b.maxKeys {
			return nil, fmt.Errorf("there are more than %d objects in %s: remove those that are no copies of snapshots, or set another prefix", b.maxKeys, b.Place())
		}
		if name, ok := nameOf(strings.TrimPrefix(object.Key, b.prefix)); ok {
			found[name] = object.Size
		}
	}
	// The library ends a list without an error where it is told to end between two requests.
	if err := ctx.Err(); err != nil {
		return nil, b.explain("list the bucket", err)
	}
	return found, nil
}

func (b *Bucket) key(name snapshot.Name) string { return b.prefix + name.String() + snapshot.Suffix }

// Put writes a copy of so many bytes.
func (b *Bucket) Put(ctx context.Context, name snapshot.Name, bytes int64, from io.Reader) error {
	// What an earlier process did not finish lies there until somebody removes it. Who may not look for it may write all the same.
	b.removeIncomplete(ctx, name)
	_, err := b.client.PutObject(ctx, b.config.Name, b.key(name), from, bytes, minio.PutObjectOptions{
		ContentType: "application/octet-stream", PartSize: partSize, NumThreads: 1,
		// Google's takes no parts: the library would hold all of the object to know its MD5.
		SendContentMd5: !s3utils.IsGoogleEndpoint(*b.client.EndpointURL()),
	})
	if err != nil {
		return b.explain("write into the bucket", err)
	}
	return nil
}

func (b *Bucket) removeIncomplete(ctx context.Context, name snapshot.Name) {
	ctx, cancel := context.WithTimeout(ctx, b.callTime)
	defer cancel()
	_ = b.client.RemoveIncompleteUpload(ctx, b.config.Name, b.key(name))
}

// Remove removes a copy.
func (b *Bucket) Remove(ctx context.Context, name snapshot.Name) error {
	ctx, cancel := context.WithTimeout(ctx, b.callTime)
	defer cancel()
	if err := b.client.RemoveObject(ctx, b.config.Name, b.key(name), minio.RemoveObjectOptions{}); err != nil {
		return b.explain("remove an old copy from the bucket", err)
	}
	return nil
}

// explain says what cannot be done with the bucket, and what to do about it. What a server says is cut and comes last, since it is a stranger's text.
func (b *Bucket) explain(doing string, err error) error {
	cannot := fmt.Sprintf("cannot %s %s at %s", doing, b.config.Name, b.config.Endpoint)
	var answer minio.ErrorResponse
	if !errors.As(err, &answer) || answer.Code == "" {
		return b.unanswered(cannot, err)
	}
	said := limits.Cut(limits.Clean(answer.Code+": "+answer.Message), 100)
	switch answer.Code {
	case "InvalidAccessKeyId", "XAdminUserNotFound", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "InvalidSecurity", "TokenRefreshRequired":
		return fmt.Errorf("%s: it does not take the credentials (%s): put good ones into %s, which is read again for each try", cannot, limits.Clean(answer.Code), b.config.CredentialsFile)
	case "AccessDenied", "AllAccessDisabled", "AccountProblem":
		return fmt.Errorf("%s: the key in %s may not do that: allow it to list the bucket, and to read, write and remove objects below %s (%s)", cannot, b.config.CredentialsFile, b.prefix, said)
	case "NoSuchBucket":
		return fmt.Errorf("%s: there is no such bucket: make it, or correct its name in the configuration", cannot)
	case "RequestTimeTooSkewed":
		return fmt.Errorf("%s: the clock of this machine differs too much from the server's: set it", cannot)
	case "AuthorizationHeaderMalformed", "PermanentRedirect", "IllegalLocationConstraintException":
		return fmt.Errorf("%s: the bucket is in another region: name it in the configuration (%s)", cannot, said)
	case "QuotaExceeded", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded", "InsufficientStorage":
		return fmt.Errorf("%s: there is no room for it: make room, or keep fewer copies (%s)", cannot, said)
	}
	return fmt.Errorf("%s: the server answers %s", cannot, said)
}

// unanswered says why there was no answer.
func (b *Bucket) unanswered(cannot string, err error) error {
	var request *url.Error
	if errors.As(err, &request) {
		err = request.Err // the address is said already
	}
	var unknown x509.UnknownAuthorityError
	var otherName x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s: it has not answered all of it within %s", cannot, b.callTime)
	case errors.As(err, &unknown):
		return fmt.Errorf("%s: the CA of its certificate is not trusted: name a file of its certificate as caFile in the configuration", cannot)
	case errors.As(err, &otherName), errors.As(err, &invalid):
		return fmt.Errorf("%s: its certificate is not good for it: %w", cannot, err)
	}
	return fmt.Errorf("%s: %w", cannot, err)
}
