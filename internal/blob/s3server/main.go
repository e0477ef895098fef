// Command s3server is an S3 server for tests: the S3 gateway of Versity as a library, with
// objects as files of a directory. It checks signatures (version 4), takes uploads in parts,
// ranges, conditions and checksums, and answers with S3's own error codes. It is a module of
// its own, so that nobody pays for its dependencies who does not run it, and no production
// binary can link it. It ends with its standard input.
//
// Its account is in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, its region is us-east-1.
// The directories in the one that it serves are its buckets.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/s3api"
	"github.com/versity/versitygw/s3api/middlewares"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: s3server HOST:PORT DIRECTORY METADATA-DIRECTORY")
		os.Exit(2)
	}
	go func() { // lives as long as the process
		_, _ = io.Copy(io.Discard, os.Stdin) // the parent holds the other end
		os.Exit(0)
	}()
	if err := serve(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "s3server:", err)
		os.Exit(1)
	}
}

// serve serves the buckets in dir. Metadata of objects is kept in a directory of its own: not
// every file system has extended attributes. So an object and its checksum are not replaced at
// the same moment, as S3 does it: who reads meanwhile may be told that they do not match.
func serve(address, dir, metadata string) error {
	sidecar, err := meta.NewSideCar(metadata)
	if err != nil {
		return err
	}
	backend, err := posix.New(dir, sidecar, posix.PosixOpts{SideCarDir: metadata})
	if err != nil {
		return err
	}
	access, secret := os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY")
	accounts := auth.NewIAMServiceSingle(auth.Account{Access: access, Secret: secret, Role: auth.RoleAdmin})
	server, err := s3api.New(backend, middlewares.RootUserConfig{Access: access, Secret: secret}, "us-east-1", accounts,
		nil, nil, nil, nil, s3api.WithQuiet(), s3api.WithKeepAlive(), s3api.WithConcurrencyLimiter(1000, 1000), s3api.WithMpMaxParts(10_000))
	if err != nil {
		return err
	}
	return server.ServeMultiPort([]string{address})
}
