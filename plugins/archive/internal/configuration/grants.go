package configuration

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/reeveproject/reeve/proto/remit"
	"github.com/reeveproject/reeve/sdk/role"
)

const (
	writePath, readPath, connect = remit.WritePath, remit.ReadPath, remit.Connect

	pathParameter, portParameter = "path", "port"
	// mounts is below which file systems are mounted, and readable is what every role may read anyway, as far as its user may. Both are on every machine: a role that is granted a path which is not
	// there does not start. The owner grants others in their place.
	mounts, readable = "/mnt", "/etc"
)

// Grants returns the powers of the host that the role wants.
func Grants() []role.Grant {
	return []role.Grant{
		role.GrantWritePath(mounts),
		role.GrantReadPath(readable),
		// The curator listens for the role on a port that the kernel chooses; and a bucket is anywhere.
		role.GrantConnect(role.AnyPort),
	}
}

// Granted is a configuration that was held against the grants.
type Granted struct {
	*Configuration
	// Directory is where copies are kept; empty: in no directory.
	Directory string
}

// Of returns the configuration of a document, as it is with these grants. The error is a *role.ConfigurationError if the role could not do what is configured.
func Of(document []byte, grants []role.Grant) (*Granted, error) {
	configuration, err := Schema.Decode(document)
	if err != nil {
		return nil, err
	}
	found := &Granted{Configuration: configuration, Directory: configuration.directory(grants)}
	var problems role.ConfigurationError
	covered := func(path string, names ...string) bool {
		return slices.ContainsFunc(grants, func(grant role.Grant) bool {
			return slices.Contains(names, grant.Name) && within(path, grant.Parameters[pathParameter])
		})
	}
	switch {
	case found.Directory == "" && configuration.Bucket == nil:
		problems.Add("", "there is no place for copies: configure a directory or a bucket, or have the cluster's owner run `reeve plugin grant archive archive:write-path:path=DIRECTORY`")
	case found.Directory != "" && !covered(found.Directory, writePath):
		problems.Add("/directory", "the role is not granted to write there: have the cluster's owner run `reeve plugin grant archive archive:write-path:path=%s`", Quote(found.Directory))
	}
	if bucket := configuration.Bucket; bucket != nil {
		checkFiles(bucket, &problems, covered)
	}
	if !slices.ContainsFunc(grants, func(grant role.Grant) bool {
		return grant.Name == connect && grant.Parameters[portParameter] == role.AnyPort
	}) {
		problems.Add("", "the role is not granted to connect to every port, and the curator of its node listens for it on one that the kernel chooses: "+
			"have the cluster's owner run `reeve plugin grant archive archive:connect`")
	}
	slices.SortFunc(problems.Problems, func(a, b role.ConfigurationProblem) int { return strings.Compare(a.Path, b.Path) })
	if err := problems.Err(); err != nil {
		return nil, err
	}
	return found, nil
}

// checkFiles adds what the role may not read. It asks for the directory of the files: a role that is granted a file goes on reading that one when another takes its name. And a grant takes the place of
// the one before it, so one must do for both.
func checkFiles(bucket *Bucket, problems *role.ConfigurationError, covered func(path string, names ...string) bool) {
	var files []string // those for which the grant read-path is what counts
	var missing []string
	for _, file := range []struct{ at, path string }{{"/bucket/credentialsFile", bucket.CredentialsFile}, {"/bucket/caFile", bucket.CAFile}} {
		if file.path == "" || within(file.path, readable) || covered(file.path, writePath) {
			continue
		}
		files = append(files, file.path)
		if !covered(file.path, readPath) {
			missing = append(missing, file.at)
		}
	}
	for _, at := range missing {
		directory := filepath.Dir(files[0])
		apart := slices.ContainsFunc(files, func(path string) bool { return !within(path, directory) })
		switch {
		case directory == "/":
			problems.Add(at, "the role is not granted to read it: put it into a directory, or below %s", readable)
		case apart:
			problems.Add(at, "the role is not granted to read it, and can be granted one directory: put the file of credentials and that of certificates into one, such as %s, and have the cluster's owner run "+
				"`reeve plugin grant archive archive:read-path:path=%s`", directory, Quote(directory))
		default:
			problems.Add(at, "the role is not granted to read it: have the cluster's owner run `reeve plugin grant archive archive:read-path:path=%s`", Quote(directory))
		}
	}
}

// Quote returns a path as it is written in a command for a shell.
func Quote(path string) string {
	if strings.Trim(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-") == "" {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

// CheckGrants returns a *role.ConfigurationError if the role could not do what is configured.
func CheckGrants(document []byte, grants []role.Grant) error {
	_, err := Of(document, grants)
	return err
}

// within reports whether a path is a directory or below it.
func within(path, directory string) bool {
	return directory != "" && (path == directory || strings.HasPrefix(path, strings.TrimSuffix(directory, "/")+"/"))
}
